"""Model card of exported policies: their origin, training and returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fullrank import __version__
from fullrank.cli.policies import summary
from fullrank.cli.runs import named
from fullrank.common.text import markdown
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec, Discrete, variant_of
from fullrank.training.evaluation import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Contents of the card."""

    run: str
    config: RunConfig
    iterations: int
    """Number of iterations that the policies were trained for."""
    agents: Sequence[AgentSpec]
    files: Sequence[str]
    """One file for each agent."""
    usage: str
    """Instructions for reading a file, in a sentence or two."""
    difference: float
    """Largest difference between the files and the run's policies on random observations."""
    played: Mapping[str, Evaluation]
    """Returns of ``trained`` and ``random`` policies in the same episodes."""
    seed: int
    """Seed of those episodes."""

    def markdown(self) -> str:
        """The card as a page."""
        parts = self._about(), self._returns(), self._files()
        return f"# Policies of {markdown(self.run)}\n\n" + "\n\n".join(parts) + "\n"

    def _about(self) -> str:
        config = self.config
        facts = {
            "environment": named(config.environment),
            "variant": variant_of(config.environment.name, config.environment.params),
            "algorithm": named(config.algorithm),
            "code": named(config.code),
            "learners": config.learners,
            "stragglers": named(config.stragglers),
            "seed": config.seed,
            "iterations": self.iterations,
            "Fullrank": __version__,
        }
        return _table(["", ""], *([name, markdown(fact)] for name, fact in facts.items()))

    def _returns(self) -> str:
        _, *columns = map(markdown, summary(self.played["trained"]))
        rows = ([name, *summary(evaluation).values()] for name, evaluation in self.played.items())
        episodes = len(self.played["trained"].returns)
        return (
            f"## Returns\n\nMeans over {episodes} undiscounted episodes, played greedily from the "
            f"initial states of seed {self.seed}, with 95 % intervals over episodes. Other "
            f"training seeds may end elsewhere.\n\n"
            f"{_table(['policy', 'all agents', *columns], *rows)}"
        )

    def _files(self) -> str:
        rows = (
            [
                file,
                *map(markdown, (agent.name, agent.side, agent.observation_size)),
                _actions(agent),
            ]
            for file, agent in zip(self.files, self.agents, strict=True)
        )
        return (
            f"## Files\n\n{self.usage} On random observations they differ from the run's own "
            f"policies by {self.difference:.1e} at most.\n\n"
            f"{_table(['file', 'agent', 'side', 'observation size', 'action'], *rows)}"
        )


def _actions(agent: AgentSpec) -> str:
    if isinstance(agent.action, Discrete):
        return f"one of {agent.action.n}"
    return f"from {list(agent.action.low)} to {list(agent.action.high)}"


def _table(heads: Sequence[str], *rows: Sequence[str]) -> str:
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
