"""The collector: the rows before the first iteration, and those of each iteration.

Environments and keys are fixed here, so that the services and the one-process driver collect the
same transitions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import numpy as np

from fullrank.algorithms import Player, Problem
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.roles import Annealed
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.environments import Environment
from fullrank.environments.capabilities import (
    doing,
    horizon_of,
    offers_masks,
    own_state_size,
    shares_reward,
)
from fullrank.environments.instances import Instances
from fullrank.replay.episodes import EpisodeLayout
from fullrank.training.collection import Collection
from fullrank.training.reward_scale import reward_scale
from fullrank.training.rollouts import Collected, Rollout
from fullrank.training.soundness import check_rows
from fullrank.training.teams import random_payment, several_teams
from fullrank.training.whole_episodes import EpisodeRound

WARM_UP = -1
"""Iteration number that keys the exploration of the warm-up."""
REPORTS = 20
"""Number of times that a warm-up reports its progress."""


class Collector:
    """Collect the transitions of each iteration and of the warm-up.

    Args:
        make_environment: Makes an environment with the given number of copies.
        environment: Tells the properties of the environment.
        actor: Selects actions, with the current policies.
        problem: Where it learns from whole episodes, the warm-up consists of them.
        collection: Collects the iterations; closed with the collector.
        seed: The run's seed.
        warmup: Rows collected before the first iteration; whole episodes may have more.
        warmup_copies: Number of environments that collect the warm-up.

    Attributes:
        agents: Specifications of the environment's agents, in order.
        layout: Layout of one row.
        warmup: As given; 0 where learners collect, or no transition of before is drawn.
        state_size: Entries of the environment's global state; 0 if it has none.
        masked: True if some actions may be unavailable to a living agent.
        horizon: Steps of every episode; 0 if their lengths differ or are unknown.
        collection: As given.
    """

    def __init__(
        self,
        make_environment: Callable[[int], Environment],
        environment: Environment,
        actor: Player,
        problem: Problem,
        *,
        collection: Collection,
        seed: int,
        warmup: int,
        warmup_copies: int,
    ) -> None:
        self._make_environment, self._environment = make_environment, environment
        self._apart: Environment | None = None
        """Environment that is played before the run's own."""
        self._actor, self._seed, self._problem = actor, seed, problem
        self.agents, self.collection = environment.agents, collection
        self.state_size, self.masked = own_state_size(environment), offers_masks(environment)
        self._transitions = layout_of(environment.agents, masked=problem.masked)
        self.layout = problem.episodes or self._transitions
        self.warmup = warmup if problem.data.batch_size and not problem.data.epochs else 0
        self._warmup_copies, self.horizon = warmup_copies, horizon_of(environment)

    def warm_up(self, report: Callable[[str], None] = lambda text: None) -> FloatArray:
        """Collect the rows before the first iteration, shape (warmup or more, row_size).

        The warm-up has separate environments, with initial states that differ from the run's.

        Args:
            report: Takes the progress as text, at most ``REPORTS`` times.

        Raises:
            ConfigError: The agents are not the one team whose reward the algorithm learns.
            EnvironmentFailed: The environment raised.
            Unsound: An observation, an action or a reward is not finite.
        """
        self.require_one_team()
        rows = self._warm_up(report)
        check_rows(rows, self.layout, what="the warm-up")
        return rows

    def _warm_up(self, report: Callable[[str], None]) -> FloatArray:
        if not self.warmup:
            return np.empty((0, self.layout.row_size), dtype=np.float32)
        seed, tell = derive(self._seed, "warm_up"), _telling(report, self.warmup)
        with self._played_apart(self._warmup_copies) as environment:
            if self._problem.episodes is not None:
                return self._episodes(environment, self._problem.episodes, seed, tell)
            rollout = Rollout(environment, self._actor, self._transitions, seed=seed)
            steps = ceil(self.warmup / self._warmup_copies)
            return rollout.collect(steps, iteration=WARM_UP, told=tell).rows[: self.warmup]

    def _episodes(
        self,
        environment: Environment,
        layout: EpisodeLayout,
        seed: int,
        tell: Callable[[int], None],
    ) -> FloatArray:
        """Play one episode of every copy, again and again, until there are enough rows."""
        scale = reward_scale(self._make_environment, horizon=self.horizon, seed=self._seed)
        if isinstance(self._actor, Annealed):
            self._actor.anneal(0)
        parts, steps, collected = list[FloatArray](), 0, 0
        while collected < self.warmup:
            round_ = EpisodeRound(environment, self._actor, layout, scale)
            copies = range(environment.copies)
            seeds = [derive(seed, "episode", copy, len(parts)) for copy in copies]
            steps = round_.play(seeds, iteration=WARM_UP, first_step=steps)
            parts.append(round_.rows)
            tell(collected := collected + len(round_.rows))
        return np.concatenate(parts)

    def require_one_team(self) -> None:
        """Refuse sides whose summed rewards a value-based algorithm would learn.

        Raises:
            ConfigError: The agents are several sides.
            EnvironmentFailed: The environment raised in a trial.
        """
        environment, agents = self._environment, self.agents
        if self._problem.episodes is None or shares_reward(environment) or len(agents) == 1:
            return
        payment = None
        if isinstance(environment, Instances):  # of another package, which may not declare sides
            with self._played_apart(1) as trial:
                payment = random_payment(trial, seed=self._seed)
        if refusal := several_teams(agents, payment):
            raise ConfigError(refusal)

    @contextmanager
    def _played_apart(self, copies: int) -> Iterator[Environment]:
        """Make an environment that is played before the run's own, and close it."""
        self._apart = environment = self._make_environment(copies)
        try:
            yield environment
        finally:
            self._apart = None
            environment.close()

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        apart = self._apart
        return (doing([apart]) if apart is not None else "") or self.collection.doing()

    def publish(self, number: int) -> None:
        """Keep the current parameters; see ``Collection.publish``."""
        self.collection.publish(number)

    def collect(self, number: int) -> Collected:
        """Collect in this process; see ``Collection.collect``."""
        return self.collection.collect(number)

    def close(self) -> None:
        """Close the environments."""
        self.collection.close()


def _telling(report: Callable[[str], None], rows: int) -> Callable[[int], None]:
    """Return a function of the rows so far that reports them in ``REPORTS`` parts."""
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        if (part := min(done, rows) * REPORTS // rows) > told:
            told = part
            report(f"warm-up: {min(done, rows):,} of {rows:,} transitions")

    return tell
