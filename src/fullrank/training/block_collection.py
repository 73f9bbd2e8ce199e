"""Collection by blocks: whole episodes, played with published parameters of a version.

Keyed blocks follow from their keys and the parameters of a version, on any process: with lag d and
K updates a collection, collection c acts with the parameters after (c - d) K updates. Free blocks
are played all the time with the newest parameters, and accepted when they come: they belong to the
iteration that can draw them first. A checkpoint holds the parameters of the collections that are
played ahead in place of their rows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms import Algorithm
from fullrank.algorithms.roles import Annealed
from fullrank.common.errors import CheckpointUnusable, ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments import Environment
from fullrank.environments.capabilities import Contested, doing
from fullrank.replay.pace import Reach
from fullrank.training.block_player import (
    BlockPlayer,
    PlayTerms,
    Publication,
    acting_sections,
    published,
)
from fullrank.training.blocks import BlockPlan
from fullrank.training.episodes import Outcomes, episode_statistics, team_returns
from fullrank.training.rollouts import ENV_STEPS, Collected

EPISODES = "episodes"
"""Statistic of an iteration whose collectors play freely: episodes that were accepted so far."""
NEEDS_SERVICES = (
    "collect.mode = 'free' needs services: collectors play all the time; train without --local, or "
    "use 'keyed'"
)
"""Refusal of free collection without a replay service."""


class BlockCollection:
    """Parameters by version, and the environment steps before a collection.

    A version is known by the collection before whose updates it was current.

    Args:
        environment: Tells how returns are counted; closed with the collection.
        algorithm: The run's, with the current parameters.
        lag: d, collections between the parameters that act and the current ones.
        updates: K, updates over one collection.

    Attributes:
        lag: As given.
        rows: Collections have no fixed number of rows.
        least_rows: Rows that every collection adds at least.
        ahead: Episodes that may be played before the collection that counts them.
    """

    rows = 0
    least_rows = 1
    ahead = 0

    def __init__(
        self, environment: Environment, algorithm: Algorithm, *, lag: int, updates: int = 1
    ) -> None:
        self._environment, self._algorithm = environment, algorithm
        self.lag, self._updates = lag, updates
        self._acting = acting_sections(algorithm)
        self._none: FloatArray = np.empty((0, algorithm.problem.row_size), np.float32)
        self._publications: dict[int, Publication] = {}
        self._env_steps = {0: 0}  # steps before a collection

    def version_of(self, number: int) -> int:
        """Return the version of the parameters that play a collection."""
        return max(0, number - self.lag)

    def publish(self, number: int) -> None:
        """Keep the current parameters, before a collection's updates, unless that was done."""
        if number not in self._publications:
            self._publications[number] = published(self._algorithm, number * self._updates)

    def publication_of(self, number: int) -> Publication:
        """Return the parameters that play a collection; they were published."""
        return self._publications[self.version_of(number)]

    def begin(self, number: int) -> PlayTerms:
        """Return the parameters and steps with which a collection is played.

        Call this while the current parameters are those of ``version_of(number)``, unless that
        version was published before.
        """
        self.publish(self.version_of(number))
        return PlayTerms(
            publication=self.publication_of(number),
            env_steps=self._env_steps[min(number, max(1, number - max(0, self.lag - 1)))],
        )

    def _collected(
        self, number: int, rows: FloatArray, outcomes: Outcomes, *, env_steps: int
    ) -> Collected:
        """Return a collection after which ``env_steps`` were played."""
        environment, actor = self._environment, self._algorithm.actor
        returns, sides = team_returns(environment, outcomes.earned)
        won = outcomes.won if isinstance(environment, Contested) else None
        statistics = dict[str, float]()
        if isinstance(actor, Annealed):
            statistics["epsilon"] = actor.anneal(self.begin(number).env_steps)
        if len(returns):
            statistics |= episode_statistics(returns, outcomes.lengths, won)
        statistics[ENV_STEPS] = float(env_steps)
        steps = env_steps - self._env_steps[number]
        self._env_steps[number + 1] = env_steps
        self.forget(number)
        return Collected(rows, returns, sides, won, statistics, steps=steps)

    def forget(self, number: int) -> None:
        """Drop what neither later collections than this one nor checkpoints before it need."""
        oldest = number - 2 * self.lag - 1
        for version in [kept for kept in list(self._publications) if kept < oldest]:
            del self._publications[version]
        for earlier in [kept for kept in list(self._env_steps) if kept < oldest]:
            del self._env_steps[earlier]

    def _ahead(self, resume_at: int) -> range:
        """Return the earlier versions that collections from ``resume_at`` on are played with."""
        return range(self.version_of(resume_at), resume_at)

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``load`` resumes at collection ``resume_at``."""
        versions = self._ahead(resume_at)
        numbers = [*versions, resume_at]
        steps = np.array([self._env_steps[number] for number in numbers], np.int64)
        return {f"published.{ENV_STEPS}": steps} | {
            f"published.{version}.{section}": values
            for version in versions
            for section, values in self._publications[version].sections.items()
        }

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at collection ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state is of another algorithm, mode or lag.
        """
        versions = self._ahead(resume_at)
        numbers = [*versions, resume_at]
        steps = state.get(f"published.{ENV_STEPS}", np.empty(0))
        names = {
            f"published.{version}.{section}" for version in versions for section in self._acting
        }
        if steps.shape != (len(numbers),) or not names <= state.keys():
            raise CheckpointUnusable(
                "the checkpoint does not hold the parameters that play ahead; resume with the "
                "algorithm, the collect.mode and the collect.lag that wrote it"
            )
        self._env_steps = dict(zip(numbers, map(int, steps), strict=True))
        self._publications = {
            version: Publication(
                version=version * self._updates,
                sections={id_: state[f"published.{version}.{id_}"] for id_ in self._acting},
            )
            for version in versions
        }

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        return doing([self._environment])

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()


class KeyedCollection(BlockCollection):
    """Plays the keyed episodes of each collection, in ascending order of collections.

    Args:
        environment: Tells how returns are counted; it is closed by the player, once there is one.
        algorithm: The run's, with the current parameters.
        make_player: Makes the player of this process, if it has to play.
        plan: Blocks of a collection.
        lag: d, collections between the parameters that act and the current ones.
        updates: K, updates over one collection.

    Attributes:
        plan: As given.
    """

    def __init__(
        self,
        environment: Environment,
        algorithm: Algorithm,
        make_player: Callable[[], BlockPlayer],
        *,
        plan: BlockPlan,
        lag: int,
        updates: int = 1,
    ) -> None:
        super().__init__(environment, algorithm, lag=lag, updates=updates)
        self._make_player, self.plan = make_player, plan
        self._played: dict[int, Collected] = {}

    @cached_property
    def _player(self) -> BlockPlayer:
        return self._make_player()

    def collect(self, number: int) -> Collected:
        """Play a collection that was begun in this process, unless that was done."""
        if number not in self._played:
            play = self.begin(number)
            blocks = [self._player.play(key, play) for key in self.plan.keys(number)]
            rows = np.concatenate([block.rows for block in blocks])
            self._played[number] = self.join(
                number, [block.outcomes for block in blocks], rows=rows
            )
            for oldest in sorted(self._played)[: -max(1, self.lag)]:
                del self._played[oldest]
        return self._played[number]

    def rederived(self, number: int, rows: FloatArray) -> FloatArray:
        """Return a collection's rows with their columns derived anew; see ``BlockPlayer``."""
        return self._player.rederived(rows, self.publication_of(number))

    def join(
        self, number: int, blocks: Sequence[Outcomes], *, rows: FloatArray | None = None
    ) -> Collected:
        """Return a collection; their numbers ascend.

        Args:
            number: Its number.
            blocks: Outcomes of its blocks in order.
            rows: Rows of its blocks; None where they are in replay.
        """
        outcomes = Outcomes.joined(blocks)
        return self._collected(
            number,
            self._none if rows is None else rows,
            outcomes,
            env_steps=self._env_steps[number] + outcomes.env_steps,
        )

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        return self._player.doing() if "_player" in self.__dict__ else super().doing()

    def close(self) -> None:
        """Close the environments that were played in, and the given one."""
        if "_player" in self.__dict__:
            self._player.close()
        else:
            super().close()


class FreeCollection(BlockCollection):
    """Publications of a run, and the collection of each iteration without its rows.

    The exploration of a version follows from the episodes that its last update could draw from, so
    that a block is a pure function of its version and its key.

    Args:
        environment: Tells how returns are counted; it is not stepped.
        algorithm: The run's, with the current parameters.
        ahead: Episodes by which playing may run ahead of the updates.
    """

    least_rows = 0

    def __init__(self, environment: Environment, algorithm: Algorithm, *, ahead: int) -> None:
        super().__init__(environment, algorithm, lag=0)
        self.ahead = ahead
        self._episodes = {0: 0}  # accepted before an iteration

    def episodes_before(self, iteration: int) -> int:
        """Return the number of episodes that the iteration before could draw, or earlier ones."""
        return self._episodes[iteration]

    def collect(self, iteration: int) -> Collected:
        """Raise ``ConfigError``: collectors play, and ``drawn`` returns the collection."""
        raise ConfigError(NEEDS_SERVICES)

    def drawn(self, iteration: int, reach: Reach, written: Sequence[Outcomes]) -> Collected:
        """Return the collection of an iteration.

        Args:
            iteration: Its number.
            reach: What it may draw from.
            written: Outcomes of the episodes that were played for it.
        """
        ends = reach.episodes * self._algorithm.problem.last_rows
        before = self._episodes[iteration]  # a checkpoint may still resume here
        self._episodes = {iteration: before, iteration + 1: reach.episodes}
        collected = self._collected(
            iteration,
            self._none,
            Outcomes.joined([Outcomes.none(len(self._environment.agents)), *written]),
            env_steps=max(self._env_steps[iteration], reach.head - ends),
        )
        facts = {EPISODES: float(reach.episodes), "lag_max": float(reach.lag)}
        return collected._replace(statistics={**collected.statistics, **facts}, blocks=reach.blocks)

    def repeated(self, iteration: int, statistics: Mapping[str, float | None]) -> None:
        """Go on after a committed iteration with these statistics."""
        self._env_steps = {iteration + 1: int(statistics[ENV_STEPS] or 0)}
        self._episodes = {iteration + 1: int(statistics[EPISODES] or 0)}

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``load`` resumes at iteration ``resume_at``."""
        episodes = np.array(self._episodes[resume_at])
        return {**super().state(resume_at=resume_at), f"published.{EPISODES}": episodes}

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at iteration ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state is of another algorithm or mode.
        """
        super().load(state, resume_at=resume_at)
        self._episodes = {resume_at: int(state.get(f"published.{EPISODES}", 0))}
