"""Virtual time of a run: durations as numbers, an agenda of events, and the course of a run."""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive, stream
from fullrank.common.types import JSON, IntArray
from fullrank.config.tree import RunConfig
from fullrank.training.evaluation import Evaluation, Greedy, evaluate
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
    holds: bool = False
    """True if one process acts and updates: free players stand still while it updates."""

    def __post_init__(self) -> None:
        least = min(self.step_s, self.acting_s, self.scatter, self.wire_s)
        if least < 0 or min(self.update_s, self.container_update_s) <= 0:
            raise ConfigError(
                "durations must be at least 0, and those of updates above 0, in virtual time"
            )

    def block_s(self, lengths: IntArray, *, key: tuple[int, int, int]) -> float:
        """Return the duration of a block, which ends with its longest episode.

        Args:
            lengths: Steps of each episode.
            key: Seed, collector or iteration, and number of the block, which key the scatter.
        """
        normal = stream(key[0], "virtual_block", *key[1:]).standard_normal()
        spread = float(np.exp(self.scatter * (normal - self.scatter / 2)))
        return int(lengths.max()) * (self.step_s + self.acting_s) * spread


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
class Evaluations:
    """Evaluations at equal distances of virtual time, of environment steps, or of both.

    A run ends with the last of them.
    """

    points: int
    """Number of evaluations, by time as by steps."""
    episodes: int
    """Episodes of each."""
    until_s: float = 0.0
    """Time of the last one, virtual seconds; 0: none by time."""
    until_steps: int = 0
    """Environment steps at the last one; 0: none by steps."""


class VirtualPoint(NamedTuple):
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


CHANNELS = VirtualPoint._fields
"""Columns kept of an evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHistory:
    """The course of a run in virtual time; equal configurations give equal histories."""

    points: tuple[VirtualPoint, ...]
    """Evaluations at equal distances of time."""
    by_steps: tuple[VirtualPoint, ...]
    """Evaluations at equal distances of steps."""
    digest: str
    """Digest of the centraliser's parameters at the end."""
    facts: dict[str, float]
    """Counts and bytes of the whole run, by name."""

    def told(self) -> JSON:
        """Return the history for a cell; evaluations are lists of ``CHANNELS``."""
        series = {"points": self.points, "by_steps": self.by_steps}
        lists = {name: [*map(list, points)] for name, points in series.items() if points}
        return {**lists, "facts": dict(self.facts), "digest": self.digest}


class VirtualCourse:
    """Counts a run, and evaluates its policy at regular times and numbers of steps.

    Args:
        config: The run's configuration.
        training: Its actor is evaluated.
        asked: The evaluations.

    Attributes:
        iteration: Committed iterations.
        episodes: Episodes played so far.
        env_steps: Environment steps played so far.
    """

    def __init__(self, config: RunConfig, training: Training, asked: Evaluations) -> None:
        self._training, self._asked = training, asked
        self._environment = environment_of(config, copies=min(COPIES, asked.episodes))
        self._seed = derive(config.seed, "virtual_evaluation")
        self._points, self._by_steps = list[VirtualPoint](), list[VirtualPoint]()
        self._reached: tuple[int, Evaluation] | None = None
        self._now_s = 0.0
        self.iteration = self.episodes = self.env_steps = 0

    @property
    def until_s(self) -> float:
        """Return when the run ends; infinite while steps are left."""
        return self._asked.until_s if self.env_steps >= self._asked.until_steps else math.inf

    def played(self, lengths: list[int]) -> None:
        """Count episodes of these lengths, and evaluate the present policy where it is due."""
        self.episodes += len(lengths)
        self.env_steps += sum(lengths)
        every = self._asked.until_steps / self._asked.points
        for due in self._due(self._by_steps, every):
            if due > self.env_steps:
                break
            self._by_steps.append(self._point(self._now_s))

    def reach(self, time_s: float) -> None:
        """Evaluate the present policy at every evaluation due before or at a time."""
        for due_s in self._due(self._points, self._asked.until_s / self._asked.points):
            if due_s > time_s:
                break
            self._points.append(self._point(due_s))
        self._now_s = float(time_s)

    def _due(self, points: list[VirtualPoint], every: float) -> list[float]:
        """Return the marks of the evaluations that are left; none if there are none at all."""
        numbers = range(len(points), self._asked.points if every else 0)
        return [(number + 1) * every for number in numbers]

    def _point(self, time_s: float) -> VirtualPoint:
        """Evaluate; a policy that was evaluated before has the same result."""
        if self._reached is None or self._reached[0] != self.iteration:
            actor = Greedy(self._training.algorithm.actor)
            found = evaluate(self._environment, actor, self._asked.episodes, self._seed)
            self._reached = self.iteration, found
        found = self._reached[1]
        return VirtualPoint(
            time_s=time_s,
            iteration=self.iteration,
            episodes=self.episodes,
            env_steps=self.env_steps,
            return_mean=float(found.returns.mean()),
            win_rate=None if found.won is None else float(found.won.mean()),
        )

    def history(self, **facts: float) -> VirtualHistory:
        """Return the history so far."""
        self._environment.close()
        counts = {
            "iterations": float(self.iteration),
            "episodes": float(self.episodes),
            "env_steps": float(self.env_steps),
        }
        return VirtualHistory(
            points=tuple(self._points),
            by_steps=tuple(self._by_steps),
            digest=self._training.trainer.digest(),
            facts={**counts, **facts},
        )
