"""One run of a team: collect, learn and evaluate."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.algorithms.base import layout_of
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.environments.base import Environment
from fullrank.replay.layout import Layout
from fullrank.replay.samplers import Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import TABLE, Table
from fullrank.training.evaluation import Greedy, evaluate
from fullrank.training.rollouts import Rollout
from fullrank_reproduction.baselines.epc.learner import Learner
from fullrank_reproduction.baselines.epc.team import Team

WARM_UP = -1
"""The iteration that keys the exploration of the warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """Settings of collection, learning and evaluation; by default the authors'."""

    copies: int = 25
    """E, the number of environments stepped together."""
    steps: int = 4
    """Steps of each environment in an iteration, which makes one update."""
    warmup: int = 25_600
    """Transitions collected before the first iteration."""
    capacity: int = 100_000
    """Most transitions held."""
    evaluate_every: int = 100
    """Iterations between evaluations; there is also one before the first and one after the last."""
    episodes: int = 10
    """Episodes of an evaluation."""
    learning: Hyperparameters = field(default_factory=Hyperparameters)
    """Hyperparameters; ``hidden`` and ``exploration_noise`` have no effect."""

    def __post_init__(self) -> None:
        for key in ("copies", "steps", "warmup", "capacity", "evaluate_every", "episodes"):
            if getattr(self, key) < 1:
                raise ConfigError(f"practice.{key} must be at least 1: {getattr(self, key)}")


class Point(NamedTuple):
    """An evaluation without exploration."""

    iteration: int
    """Number of updates before the evaluation."""
    seconds: float
    """Seconds of the iterations before it, without evaluations."""
    mean_return: float
    """Mean return of an episode, summed over the team; in a contest, over the last agent's side."""


def practise(
    team: Team,
    world: Environment,
    court: Environment,
    practice: Practice,
    *,
    iterations: int,
    seed: int,
    evaluation_seed: int,
    clock: Callable[[], float],
) -> Iterator[Point]:
    """Train a team.

    Args:
        team: The team, which is updated.
        world: Environment for training.
        court: Environment for evaluation.
        practice: Settings.
        iterations: Number of iterations.
        seed: Seed of collection and draws.
        evaluation_seed: Seed of evaluations, combined with the iteration.
        clock: Processor clock.

    Yields:
        Every evaluation.
    """
    lesson = _Lesson(team, world, practice, iterations=iterations, seed=seed)
    begun, seconds = clock(), 0.0
    lesson.collect(ceil(practice.warmup / practice.copies), WARM_UP)
    for iteration in range(iterations + 1):
        if iteration % practice.evaluate_every == 0 or iteration == iterations:
            seconds += clock() - begun
            draw = derive(evaluation_seed, "learning_curve", iteration)
            played = evaluate(court, Greedy(team), practice.episodes, draw)
            judged = played.side_returns[court.agents[-1].side]
            yield Point(iteration, seconds, float(judged.mean()))
            begun = clock()
        if iteration < iterations:
            lesson.collect(practice.steps, iteration)
            lesson.update(iteration)


class _Lesson:
    """State of a run other than its team: episodes, transitions, optimiser."""

    def __init__(
        self, team: Team, world: Environment, practice: Practice, *, iterations: int, seed: int
    ) -> None:
        layout = layout_of(world.agents)
        self._seed, self._batch_size = seed, practice.learning.batch_size
        self._rollout = Rollout(world, team, layout, seed=seed)
        self._learner = Learner(team, layout, practice.learning, seed=seed)
        self._table = _table(layout, practice, iterations=iterations)

    def collect(self, steps: int, iteration: int) -> None:
        """Collect transitions."""
        self._table.append(self._table.head, self._rollout.collect(steps, iteration).rows)

    def update(self, iteration: int) -> None:
        """Update from a minibatch."""
        sample = Sample(
            table=TABLE,
            seed=self._seed,
            iteration=iteration,
            tail=self._table.tail,
            head=self._table.head,
            size=self._batch_size,
        )
        self._learner.update(self._table.minibatch(sample), iteration=iteration)


def _table(layout: Layout, practice: Practice, *, iterations: int) -> Table:
    """A table for all transitions of the run, up to the capacity."""
    warmup = ceil(practice.warmup / practice.copies) * practice.copies
    filled = warmup + iterations * practice.copies * practice.steps
    capacity = min(practice.capacity, filled)
    return Table(MemoryStorage(capacity, layout.row_size), capacity=capacity)
