"""The collector: steps environments with an actor, iteration by iteration, into packed rows.

Environments and keys are fixed here, so that the services and the one-process driver collect the
same transitions.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from fullrank.algorithms import Actor, Problem
from fullrank.algorithms.base import layout_of
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
from fullrank.training.episode_rollouts import EpisodeRollout
from fullrank.training.evaluation_rollout import EvaluationRollout
from fullrank.training.free import FreeRollout
from fullrank.training.keyed import KeyedRollout
from fullrank.training.reward_scale import RewardScale, reward_scale
from fullrank.training.rollouts import Collected, Rollout
from fullrank.training.soundness import check_rows
from fullrank.training.teams import random_payment, several_teams
from fullrank.training.trainer import part

WARM_UP = -1
"""Iteration number that keys the exploration of the warm-up."""
REPORTS = 20
"""Number of times that a warm-up reports its progress."""


class Collector:
    """Collect the transitions of each iteration and of the warm-up.

    Args:
        make_environment: Makes an environment with the given number of copies.
        environment: Environment of the iterations; closed with the collector.
        actor: Selects actions, with the current policies.
        problem: Where it learns from whole episodes, every copy plays one in each iteration; where
            learners collect, whole episodes are evaluated instead.
        seed: The run's seed.
        steps: Steps of each copy in one iteration, unless whole episodes are played.
        warmup: Rows collected before the first iteration; whole episodes may have more.
        warmup_copies: Number of environments that collect the warm-up.
        keyed: Collects the iterations, if they are played by blocks.
        free: Joins the episodes that collectors write to replay; none is then collected here.

    Attributes:
        agents: Specifications of the environment's agents, in order.
        layout: Layout of one row.
        warmup: Rows collected before the first iteration; 0 where learners collect.
        state_size: Entries of the environment's global state; 0 if it has none.
        masked: True if some actions may be unavailable to a living agent.
        horizon: Steps of every episode; 0 if their lengths differ or are unknown.
        keyed: As given.
        free: As given.
    """

    def __init__(
        self,
        make_environment: Callable[[int], Environment],
        environment: Environment,
        actor: Actor,
        problem: Problem,
        *,
        seed: int,
        steps: int,
        warmup: int,
        warmup_copies: int,
        keyed: KeyedRollout | None = None,
        free: FreeRollout | None = None,
    ) -> None:
        self._make_environment, self._environment = make_environment, environment
        self._played = [environment]
        self._actor, self._seed, self._steps = actor, seed, steps
        self._problem, data = problem, problem.data
        self.agents = environment.agents
        self.state_size, self.masked = own_state_size(environment), offers_masks(environment)
        self._transitions = layout_of(environment.agents, masked=problem.masked)
        self.layout = problem.episodes or self._transitions
        self.warmup, self._warmup_copies = warmup if data.batch_size else 0, warmup_copies
        self.horizon, self.keyed, self.free = horizon_of(environment), keyed, free
        self._collected: dict[int, Collected] = {}  # the last ones, by iteration
        self._kept = 1 if keyed is None else max(1, keyed.lag)

    @cached_property
    def _rollout(self) -> Rollout | EpisodeRollout | EvaluationRollout | KeyedRollout:
        """Return the collection of the iterations, which free collection does not need."""
        horizon = self.horizon
        stagger = horizon if horizon and self._steps % horizon else 0
        return self.keyed or self._rollout_of(self._environment, seed=self._seed, stagger=stagger)

    def _rollout_of(
        self, environment: Environment, *, seed: int, stagger: int = 0
    ) -> Rollout | EpisodeRollout | EvaluationRollout:
        """Choose the collection that the problem asks for."""
        actor, episodes, data = self._actor, self._problem.episodes, self._problem.data
        if episodes is not None:
            return EpisodeRollout(environment, actor, episodes, seed=seed, scale=self._scale)
        layout = self._transitions
        if data.batch_size:
            return Rollout(environment, actor, layout, seed=seed, stagger=stagger)
        return EvaluationRollout(environment, actor, layout, seed=seed, every=data.evaluate_every)

    @cached_property
    def _scale(self) -> RewardScale:
        """Return the scale of whole episodes, which takes a play of many to find."""
        return reward_scale(self._make_environment, horizon=self.horizon, seed=self._seed)

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
        with self._apart(self._warmup_copies) as environment:
            seed = derive(self._seed, "warm_up")
            rollout, told = self._rollout_of(environment, seed=seed), _telling(report, self.warmup)
            if isinstance(rollout, EpisodeRollout):
                return rollout.play(self.warmup, iteration=WARM_UP, told=told).rows
            assert isinstance(rollout, Rollout)  # a warm-up is drawn from, not evaluated
            steps = ceil(self.warmup / self._warmup_copies)
            return rollout.collect(steps, iteration=WARM_UP, told=told).rows[: self.warmup]

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
            with self._apart(1) as trial:
                payment = random_payment(trial, seed=self._seed)
        if refusal := several_teams(agents, payment):
            raise ConfigError(refusal)

    @contextmanager
    def _apart(self, copies: int) -> Iterator[Environment]:
        """Make an environment that is played before the run's own, and close it."""
        environment = self._make_environment(copies)
        self._played.append(environment)
        try:
            yield environment
        finally:
            self._played.remove(environment)
            environment.close()

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        return doing([*self._played]) or ("" if self.keyed is None else self.keyed.doing())

    def publish(self, version: int) -> None:
        """Keep the current parameters, after ``version`` updates, for iterations played ahead."""
        if self.keyed is not None:
            self.keyed.publish(version)

    def collect(self, iteration: int) -> Collected:
        """Collect with the current policies; return the stored collection on a repeated call.

        Raises:
            Unsound: An observation, an action or a reward is not finite.
        """
        if iteration not in self._collected:
            collected = self._rollout.collect(self._steps, iteration=iteration)
            check_rows(collected.rows, self.layout, what=f"iteration {iteration}")
            self._collected[iteration] = collected
            for oldest in sorted(self._collected)[: -self._kept]:
                del self._collected[oldest]
        return self._collected[iteration]

    def state(self, *, resume_at: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays from which ``load`` resumes at iteration ``resume_at``.

        Call this once ``resume_at - 1`` is applied; ``resume_at`` may already have been collected.
        """
        if self.free is not None:
            free = self.free.state(resume_at=resume_at)
            return {f"free.{name}": array for name, array in free.items()}
        if isinstance(self._rollout, KeyedRollout):
            state = self._rollout.state(resume_at=resume_at)
            return {f"keyed.{name}": array for name, array in state.items()}
        ahead: dict[str, np.ndarray[Any, Any]] = {}
        collected = self._collected.get(resume_at)
        if collected is not None:
            sides = {f"side.{side}": value for side, value in collected.side_returns.items()}
            wins = {} if collected.won is None else {"won": collected.won}
            counts = {
                f"statistic.{name}": np.array([value])
                for name, value in collected.statistics.items()
            }
            ahead = {"rows": collected.rows, "returns": collected.returns}
            ahead |= {**sides, **wins, **counts}
        parts = {"rollout": self._rollout.state(), "collected": ahead}
        return {
            f"{name}.{key}": array
            for name, arrays in parts.items()
            for key, array in arrays.items()
        }

    def load(self, state: Mapping[str, np.ndarray[Any, Any]], *, resume_at: int) -> None:
        """Resume at iteration ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state belongs to another environment or number of copies.
            EnvironmentFailed: The environments are not reproducible.
        """
        if self.free is not None:
            self.free.load(part(state, "free"), resume_at=resume_at)
            return
        if isinstance(self._rollout, KeyedRollout):
            self._rollout.load(part(state, "keyed"), resume_at=resume_at)
            return
        self._rollout.load(part(state, "rollout"))
        ahead = part(state, "collected")
        if ahead:
            sides = part(ahead, "side")
            statistics = {name: float(value[0]) for name, value in part(ahead, "statistic").items()}
            collected = Collected(
                ahead["rows"], ahead["returns"], sides, ahead.get("won"), statistics
            )
            self._collected = {resume_at: collected}

    def close(self) -> None:
        """Close the environments."""
        self._environment.close()
        if self.keyed is not None:
            self.keyed.close()


def _telling(report: Callable[[str], None], rows: int) -> Callable[[int], None]:
    """Return a function of the rows so far that reports them in ``REPORTS`` parts."""
    told = 0

    def tell(done: int) -> None:
        nonlocal told
        if (part := min(done, rows) * REPORTS // rows) > told:
            told = part
            report(f"warm-up: {min(done, rows):,} of {rows:,} transitions")

    return tell
