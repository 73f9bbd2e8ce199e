"""The course of a run in virtual time: returns of the greedy policy, and their times."""

from dataclasses import dataclass

from fullrank.common.seeding import derive
from fullrank.config.tree import RunConfig
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.wiring import Training, environment_of

COPIES = 8
"""Copies in which evaluations are played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualPoint:
    """An evaluation of the centraliser's greedy policy."""

    time_s: float
    """Virtual time, seconds."""
    iteration: int
    """Number of committed iterations."""
    episodes: int
    """Number of episodes played."""
    env_steps: int
    """Environment steps played."""
    return_mean: float
    """Mean return of the team."""
    win_rate: float | None
    """Share of the episodes that were won; None where there are no wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHistory:
    """The course of a run in virtual time; equal configurations give equal histories."""

    points: tuple[VirtualPoint, ...]
    digest: str
    """Digest of the centraliser's parameters at the end."""
    facts: dict[str, float]
    """Counts and bytes of the whole run, by name."""


class VirtualCourse:
    """Counts a run, and evaluates its policy in regular virtual times.

    Args:
        config: The run's configuration.
        training: Its actor is evaluated.
        every_s: Virtual time between two evaluations, seconds.
        episodes: Episodes of an evaluation.

    Attributes:
        iteration: Committed iterations.
        episodes: Episodes played so far.
        env_steps: Environment steps played so far.
    """

    def __init__(
        self, config: RunConfig, training: Training, *, every_s: float, episodes: int
    ) -> None:
        self._training, self._every_s, self._count = training, every_s, episodes
        self._environment = environment_of(config, copies=min(COPIES, episodes))
        self._seed = derive(config.seed, "virtual_evaluation")
        self._points: list[VirtualPoint] = []
        self.iteration = self.episodes = self.env_steps = 0

    def played(self, lengths: list[int]) -> None:
        """Count episodes of these lengths."""
        self.episodes += len(lengths)
        self.env_steps += sum(lengths)

    def reach(self, time_s: float) -> None:
        """Evaluate the present policy at every evaluation due before or at a time."""
        while (due_s := (len(self._points) + 1) * self._every_s) <= time_s:
            actor = Greedy(self._training.algorithm.actor)
            reached = evaluate(self._environment, actor, self._count, self._seed)
            won = reached.won
            self._points.append(
                VirtualPoint(
                    time_s=due_s,
                    iteration=self.iteration,
                    episodes=self.episodes,
                    env_steps=self.env_steps,
                    return_mean=float(reached.returns.mean()),
                    win_rate=None if won is None else float(won.mean()),
                )
            )

    def history(self, **facts: float) -> VirtualHistory:
        """Return the history so far."""
        self._environment.close()
        counts = {
            "iterations": float(self.iteration),
            "episodes": float(self.episodes),
            "env_steps": float(self.env_steps),
        }
        digest = self._training.trainer.digest()
        return VirtualHistory(points=tuple(self._points), digest=digest, facts={**counts, **facts})
