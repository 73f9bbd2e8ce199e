"""Virtual time of a run: durations as numbers, an agenda of events, and the course of a run."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive, stream
from fullrank.common.types import IntArray
from fullrank.config.tree import RunConfig
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.wiring.plugins import environment_of
from fullrank.wiring.training import Training

COPIES = 8
"""Copies in which evaluations are played."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualDurations:
    """Durations of a run's phases, in seconds."""

    step_s: float = 0.02
    """Step of an environment on a core of its own."""
    acting_s: float = 0.002
    """Choice of the actions of all copies of a collector."""
    scatter: float = 0.0
    """Standard deviation of the logarithm of a block's duration."""
    update_s: float = 0.1
    """Update of the centraliser, including its round."""
    container_update_s: float = 0.1
    """Update of a container."""
    wire_s: float = 0.001
    """Travel of episodes, or of parameters."""
    cores: int = 0
    """Cores that all actors share; 0: one for each."""

    def __post_init__(self) -> None:
        least = min(self.step_s, self.acting_s, self.scatter, self.wire_s, self.cores)
        if least < 0 or min(self.update_s, self.container_update_s) <= 0:
            raise ConfigError(
                "durations must be at least 0, and those of updates above 0, in virtual time"
            )

    def block_s(self, lengths: IntArray, *, actors: int, key: tuple[int, int, int]) -> float:
        """Return the duration of a block, which ends with its longest episode.

        Args:
            lengths: Steps of each episode.
            actors: Copies that play at a time, in all collectors.
            key: Seed, collector or iteration, and number of the block, which key the scatter.
        """
        crowd = max(1.0, actors / self.cores) if self.cores else 1.0
        normal = stream(key[0], "virtual_block", *key[1:]).standard_normal()
        spread = float(np.exp(self.scatter * (normal - self.scatter / 2)))
        return int(lengths.max()) * (self.step_s * crowd + self.acting_s) * spread


class Agenda:
    """Actions by virtual time; those of equal time are done in the order of their entry.

    Attributes:
        now_s: Time of the action that is being done.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._order = count()
        self._entries: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Enter an action that is done after a delay."""
        heapq.heappush(self._entries, (self.now_s + delay_s, next(self._order), action))

    def next(self, *, until_s: float) -> bool:
        """Advance to the next action and do it; return False if none is due by ``until_s``."""
        if not self._entries or self._entries[0][0] > until_s:
            return False
        self.now_s, _, action = heapq.heappop(self._entries)
        action()
        return True


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
