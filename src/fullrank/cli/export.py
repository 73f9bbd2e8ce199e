"""``fullrank export``: a run's policies as files that do not need Fullrank, with a model card."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fullrank import __version__
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.cli.options import EpisodesOption, InitialSeedOption, RunArgument, TrustOption
from fullrank.cli.policies import Trained, play_episodes, summary, trained
from fullrank.cli.runs import find_run, named, runnable_config
from fullrank.cli.say import say
from fullrank.common.durable import rename, writing
from fullrank.common.errors import FullrankError, NoEnd
from fullrank.common.text import markdown
from fullrank.config.tree import RunConfig
from fullrank.environments import AgentSpec, Continuous, variant_of
from fullrank.export import graph, parity, tensors
from fullrank.export.policy import Form, Policy, PolicyFunction
from fullrank.export.recurrent import PlayStep, RecurrentGraph, RecurrentPolicy, RecurrentTensors
from fullrank.training.evaluation import Evaluation, Greedy


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
    """Largest difference between the files and the run's policies on random observations, relative
    to the largest output above 1."""
    played: Mapping[str, Evaluation] | NoEnd
    """Returns of ``trained`` and ``random`` policies in the same episodes; why there are none."""
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
        if isinstance(self.played, NoEnd):
            return f"## Returns\n\nNone: {self.played}."
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
            f"policies by {self.difference:.1e} at most (relative to the largest output where that "
            f"is above 1).\n\n"
            f"{_table(['file', 'agent', 'side', 'observation size', 'action'], *rows)}"
        )


def _actions(agent: AgentSpec) -> str:
    if isinstance(agent.action, Continuous):
        return f"from {list(agent.action.low)} to {list(agent.action.high)}"
    return " and ".join(f"one of {size}" for size in agent.action.choices)


def _table(heads: Sequence[str], *rows: Sequence[str]) -> str:
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


CARD = "README.md"
P = TypeVar("P", Policy, RecurrentPolicy)
R = TypeVar("R")


class Format(StrEnum):
    """File format of exported policies."""

    SAFETENSORS = auto()
    ONNX = auto()


_FORMS: Mapping[Format, Form[Policy, PolicyFunction]] = {
    Format.SAFETENSORS: tensors,
    Format.ONNX: graph,
}
_RECURRENT: Mapping[Format, Form[RecurrentPolicy, PlayStep]] = {
    Format.SAFETENSORS: RecurrentTensors,
    Format.ONNX: RecurrentGraph,
}


def export(
    run: RunArgument,
    form: Annotated[Format, typer.Option("--format", help="File format.")] = Format.SAFETENSORS,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="New directory; default: <run>/export/<format>."),
    ] = None,
    episodes: EpisodesOption = 100,
    seed: InitialSeedOption = 1000,
    trust: TrustOption = None,
) -> None:
    """Write each agent's newest policy, checked against the run's, and a model card."""
    directory = find_run(run)
    config = runnable_config(directory, trust)
    folder = output or directory / "export" / form
    if folder.exists():
        raise FullrankError(f"{folder} exists already; choose another --output")
    policies = trained(directory, config)
    with _whole(folder) as partial:
        files, difference, usage = _write(
            policies, form, partial, about=_about(policies, directory, config)
        )
        card = Card(
            run=directory.name,
            config=config,
            iterations=policies.iteration + 1,
            agents=policies.agents,
            files=files,
            usage=usage,
            difference=difference,
            played=_played(policies, config, episodes=episodes, seed=seed),
            seed=seed,
        )
        (partial / CARD).write_text(card.markdown(), encoding="utf-8")
    say(folder)


def _played(
    policies: Trained, config: RunConfig, *, episodes: int, seed: int
) -> Mapping[str, Evaluation] | NoEnd:
    """Episodes of the policies and of random play; an error where one does not end."""
    acts = {"trained": Greedy(policies.algorithm.actor), "random": None}
    try:
        return {
            name: play_episodes(config, act, episodes=episodes, seed=seed)
            for name, act in acts.items()
        }
    except NoEnd as error:
        return error


def _about(policies: Trained, directory: Path, config: RunConfig) -> Mapping[str, str]:
    """Metadata of every file; they suffice to make the environment again."""
    return {
        "fullrank": __version__,
        "run": directory.name,
        "iterations": str(policies.iteration + 1),
        "environment": config.environment.name,
        "parameters": json.dumps(dict(config.environment.params)),
    }


def _write(
    policies: Trained, form: Format, folder: Path, *, about: Mapping[str, str]
) -> tuple[list[str], float, str]:
    """Write a file for each agent.

    Returns:
        Names of the files by agent, their largest difference from the run's policies, and
        instructions for reading them.
    """
    actor, agents = policies.algorithm.actor, policies.agents
    perceptrons, recurrent = list[Policy](), list[RecurrentPolicy]()
    for index, agent in enumerate(agents):
        layers = actor.policy(index)
        if isinstance(layers, RecurrentLayers):
            recurrent.append(RecurrentPolicy(agent=agent, layers=layers))
        else:
            perceptrons.append(Policy(agent=agent, layers=layers))
    files = [f"policy_{index:03d}.{form}" for index in range(len(agents))]
    paths = [folder / file for file in files]
    if recurrent:
        steps = _saved(recurrent, _RECURRENT[form], paths, about=about)
        difference = parity.check_recurrent(recurrent, steps, actor, seed=0)
        return files, difference, _RECURRENT[form].USAGE
    plays = _saved(perceptrons, _FORMS[form], paths, about=about)
    difference = parity.check(perceptrons, plays, Greedy(actor), seed=0)
    return files, difference, _FORMS[form].USAGE


def _saved(
    policies: Sequence[P], kind: Form[P, R], paths: Sequence[Path], *, about: Mapping[str, str]
) -> list[R]:
    """Write every policy and read it back."""
    for policy, path in zip(policies, paths, strict=True):
        facts = {**about, "agent": policy.agent.name, "side": policy.agent.side}
        kind.save(policy, path, facts=facts)
    return [kind.load(policy, path) for policy, path in zip(policies, paths, strict=True)]


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """Yield a scratch directory that is renamed to ``folder`` when the block ends.

    Raises:
        FullrankError: It cannot be made or written to.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as scratch:
            partial = Path(scratch) / folder.name
            partial.mkdir()
            yield partial
            rename(partial, folder)
