"""The collector of a run, and collection in the process of its parameters, step by step.

The collector has the rows before the first iteration, and those of each iteration. Environments and
keys are fixed here, so that the services and the one-process driver collect the same transitions.
Its collection is one of these or by blocks (``block_collection``), as chosen where a run is built.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms import DataMode, Problem
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.roles import Annealed, Player, Prepare
from fullrank.common.errors import ConfigError
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.environments.base import Environment
from fullrank.environments.capabilities import (
    doing,
    horizon_of,
    shares_reward,
    step_limit_of,
)
from fullrank.environments.instances import Instances
from fullrank.replay.episodes import EpisodeLayout
from fullrank.replay.layout import Layout
from fullrank.training.evaluation import Greedy, evaluate, reward_scale
from fullrank.training.rollouts import ENV_STEPS, Collected, Rollout
from fullrank.training.soundness import check_rows
from fullrank.training.survey import random_payment, several_teams
from fullrank.training.trainer import part
from fullrank.training.whole_episodes import EpisodeRound


class Collection(Protocol):
    """Makes the collections of a run, with the current parameters or earlier ones.

    Where every collection is for one update, their numbers are those of the iterations.
    """

    @property
    def rows(self) -> int:
        """Rows of every collection; 0 if their number differs."""

    @property
    def least_rows(self) -> int:
        """Rows that every collection adds at least."""

    @property
    def ahead(self) -> int:
        """Episodes that may be played before the collection that counts them."""

    def publish(self, number: int) -> None:
        """Keep the current parameters, before a collection's updates, for what is played ahead."""

    def collect(self, number: int) -> Collected:
        """Collect in this process, or return what was collected ahead.

        Raises:
            Unsound: An observation, an action or a reward is not finite.
            EnvironmentFailed: The environment raised.
            ConfigError: Collectors play freely instead.
        """

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``load`` resumes at collection ``resume_at``.

        Call this once the updates over ``resume_at - 1`` are applied; ``resume_at`` may already
        have been collected.
        """

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at collection ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state belongs to another configuration.
            EnvironmentFailed: The environments are not reproducible.
        """

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""

    def close(self) -> None:
        """Close the environments."""


class OwnCollection:
    """Plays in the run's own environments, with the current parameters.

    Args:
        environment: Environment of the collections; closed with the collection.
        layout: Layout of one transition.
        rows: Rows of a collection.
        steps: Environment steps for a collection.
        play: Collects.

    Attributes:
        rows: As given.
        least_rows: As many.
        ahead: None is played ahead.
    """

    ahead = 0

    def __init__(
        self,
        environment: Environment,
        layout: Layout,
        *,
        rows: int,
        steps: int,
        play: Callable[[int], Collected],
    ) -> None:
        self._environment, self._layout, self._play = environment, layout, play
        self._steps = steps
        self.rows = self.least_rows = rows
        self._kept: dict[int, Collected] = {}
        """The newest collection, and the one before, over which the run may still compute."""

    def publish(self, number: int) -> None:
        """Do nothing: a collection begins with the current parameters."""

    def collect(self, number: int) -> Collected:
        """Collect; return a kept collection on a repeated call.

        Raises:
            Unsound: An observation, an action or a reward is not finite.
        """
        if number not in self._kept:
            collected = self._play(number)
            check_rows(collected.rows, self._layout, what=f"iteration {number}")
            before = {one: kept for one, kept in self._kept.items() if one == number - 1}
            self._kept = before | {number: self._counted(number, collected)}
        return self._kept[number]

    def _counted(self, number: int, collected: Collected) -> Collected:
        """Return a collection with the environment steps that were played for it and before."""
        statistics = {ENV_STEPS: float((number + 1) * self._steps)} if self._steps else {}
        return collected._replace(statistics=statistics, steps=self._steps)

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the collection ``resume_at``, if it was collected already."""
        if resume_at not in self._kept:
            return {}
        collected = self._kept[resume_at]
        arrays: dict[str, NDArray[Any]] = {"rows": collected.rows, "returns": collected.returns}
        arrays |= {f"side.{side}": value for side, value in collected.side_returns.items()}
        if collected.won is not None:
            arrays["won"] = collected.won
        return {f"collected.{name}": array for name, array in arrays.items()}

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at collection ``resume_at`` from the arrays returned by ``state``."""
        ahead = part(state, "collected")
        if ahead:
            sides, won = part(ahead, "side"), ahead.get("won")
            collected = Collected(ahead["rows"], ahead["returns"], sides, won)
            self._kept = {resume_at: self._counted(resume_at, collected)}

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        return doing([self._environment])

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class StepCollection(OwnCollection):
    """Steps every copy equally often in each collection; episodes continue from one to the next.

    Args:
        environment: Environment of the collections; closed with the collection.
        player: Selects actions, with the current policies.
        layout: Layout of one transition.
        seed: The run's seed.
        steps: Steps of each copy in one collection.
        make_rollout: Makes the rollout, where it plays.
    """

    def __init__(
        self,
        environment: Environment,
        player: Player,
        layout: Layout,
        *,
        seed: int,
        steps: int,
        make_rollout: Callable[..., Rollout] = Rollout,
    ) -> None:
        horizon = horizon_of(environment)
        stagger = horizon if horizon and steps % horizon else 0
        rollout = make_rollout(environment, player, layout, seed=seed, stagger=stagger)
        self._rollout = rollout
        rows, play = steps * environment.copies, partial(rollout.collect, steps)
        super().__init__(environment, layout, rows=rows, steps=rows, play=play)
        self._begun, self._before = 0, rollout.mark()

    def collect(self, number: int) -> Collected:
        """Collect; return a kept collection on a repeated call."""
        if number not in self._kept:
            self._begun, self._before = number, self._rollout.mark()
        return super().collect(number)

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the state of the environments, and the collection that was collected already.

        Environments are where collection ``resume_at`` left them, or where it found them if it has
        failed, even if the next one has begun.
        """
        failed = self._begun == resume_at and resume_at not in self._kept
        mark = self._before if failed or self._begun > resume_at else self._rollout.mark()
        rollout = {f"rollout.{name}": array for name, array in mark().items()}
        return rollout | super().state(resume_at=resume_at)

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at collection ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state belongs to another environment or number of copies.
            EnvironmentFailed: The environments are not reproducible.
        """
        self._rollout.load(part(state, "rollout"))
        super().load(state, resume_at=resume_at)


class EvaluationCollection(OwnCollection):
    """Evaluates in place of collecting, where learners make their own samples.

    Args:
        environment: Environment; an evaluation runs one episode in each copy.
        player: Selects actions without exploration.
        layout: Layout of a transition.
        seed: The run's seed; the evaluation of iteration k is keyed by (seed, "evaluations", k).
        data: How often to evaluate, and the environment steps of learners.
    """

    def __init__(
        self, environment: Environment, player: Player, layout: Layout, *, seed: int, data: DataMode
    ) -> None:
        steps = len(environment.agents) * data.agent_steps
        super().__init__(environment, layout, rows=0, steps=steps, play=self._evaluated)
        self._player, self._seed, self._every = player, seed, data.evaluate_every

    def _evaluated(self, iteration: int) -> Collected:
        """Run the iteration's evaluation on whole episodes, if it is due."""
        nothing: FloatArray = np.empty((0, self._layout.row_size), dtype=np.float32)
        if iteration % self._every:
            return Collected(nothing, np.empty(0), {})
        seed = derive(self._seed, "evaluations", iteration)
        player, copies = Greedy(self._player), self._environment.copies
        played = evaluate(self._environment, player, copies, seed)
        return Collected(nothing, played.returns, played.side_returns, played.won)


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
        prepare: Fills the derived columns of the warm-up.

    Attributes:
        agents: Specifications of the environment's agents, in order.
        layout: Layout of one row.
        warmup: As given; 0 where learners collect, or no transition of before is drawn.
        horizon: Steps of every episode; 0 if their lengths differ or are unknown.
        step_limit: Most steps of an episode; 0 if unknown.
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
        prepare: Prepare | None = None,
    ) -> None:
        self._make_environment, self._environment = make_environment, environment
        self._apart: Environment | None = None
        """Environment that is played before the run's own."""
        self._actor, self._seed, self._problem = actor, seed, problem
        self.agents, self.collection = environment.agents, collection
        self._transitions = layout_of(environment.agents, masked=problem.masked)
        self.layout = problem.episodes or self._transitions
        self.warmup = warmup if problem.data.batch_size and not problem.data.epochs else 0
        self._warmup_copies, self._prepare = warmup_copies, prepare
        self.horizon, self.step_limit = horizon_of(environment), step_limit_of(environment)

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
            if self._prepare is not None:
                self._prepare(parts[-1])
            tell(collected := collected + len(parts[-1]))
        return np.concatenate(parts)

    def require_one_team(self) -> None:
        """Refuse sides whose summed rewards an algorithm would learn as those of one team.

        Raises:
            ConfigError: The agents are several sides.
            EnvironmentFailed: The environment raised in a trial.
        """
        environment, agents = self._environment, self.agents
        if not self._problem.learns_team_reward or shares_reward(environment) or len(agents) == 1:
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
