"""Keyed collection: an iteration's episodes, played block by block with parameters of a version.

With lag d, iteration i acts with the parameters after iteration i - 1 - d. Its blocks follow from
their keys and those parameters, on any process; a checkpoint therefore holds the parameters of
the iterations that are played ahead in place of their rows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms import Algorithm
from fullrank.algorithms.roles import Annealed
from fullrank.common.errors import CheckpointUnusable
from fullrank.environments import Environment
from fullrank.environments.capabilities import Contested
from fullrank.training.block_player import (
    BlockPlayer,
    PlayedBlock,
    PlayTerms,
    Publication,
    acting_sections,
    published,
)
from fullrank.training.blocks import BlockPlan
from fullrank.training.episodes import episode_statistics, team_returns
from fullrank.training.rollouts import Collected


class KeyedRollout:
    """Collects the keyed episodes of each iteration, in ascending order of iterations.

    Args:
        environment: Tells how returns are counted; it is not stepped.
        algorithm: The run's, with the current parameters.
        make_player: Makes the player of this process, if it has to play.
        plan: Blocks of an iteration.
        lag: d, updates between the parameters that act and the current ones.

    Attributes:
        plan: As given.
        lag: As given.
    """

    def __init__(
        self,
        environment: Environment,
        algorithm: Algorithm,
        make_player: Callable[[], BlockPlayer],
        *,
        plan: BlockPlan,
        lag: int,
    ) -> None:
        self.plan = plan
        self._environment, self._algorithm, self.lag = environment, algorithm, lag
        self._make_player, self._acting = make_player, acting_sections(algorithm)
        self._publications: dict[int, Publication] = {}
        self._env_steps = {0: 0}  # steps before an iteration

    @cached_property
    def _player(self) -> BlockPlayer:
        return self._make_player()

    def version_of(self, iteration: int) -> int:
        """Return the version of the parameters that play an iteration."""
        return max(0, iteration - self.lag)

    def publish(self, version: int) -> None:
        """Keep the current parameters, which are those of ``version``, unless that was done."""
        if version not in self._publications:
            self._publications[version] = published(self._algorithm, version)

    def begin(self, iteration: int) -> PlayTerms:
        """Return the parameters and steps with which an iteration is played.

        Call this while the current parameters are those of ``version_of(iteration)``, unless that
        version was published before.
        """
        version = self.version_of(iteration)
        self.publish(version)
        return PlayTerms(
            publication=self._publications[version],
            env_steps=self._env_steps[min(iteration, max(1, iteration - max(0, self.lag - 1)))],
        )

    def collect(self, steps: int, iteration: int) -> Collected:
        """Play an iteration that was begun in this process; ``steps`` is ignored."""
        play = self.begin(iteration)
        blocks = [self._player.play(key, play) for key in self.plan.keys(iteration)]
        return self.join(iteration, blocks)

    def join(self, iteration: int, blocks: Sequence[PlayedBlock]) -> Collected:
        """Return the collection of an iteration from its blocks in order; iterations ascend."""
        environment, actor = self._environment, self._algorithm.actor
        play, contested = self.begin(iteration), isinstance(environment, Contested)
        returns, sides = team_returns(
            environment, np.concatenate([block.earned for block in blocks])
        )
        lengths = np.concatenate([block.lengths for block in blocks])
        won = np.concatenate([block.won for block in blocks]) if contested else None
        env_steps = self._env_steps[iteration] + int(lengths.sum())
        statistics: dict[str, float] = {}
        if isinstance(actor, Annealed):
            statistics["epsilon"] = actor.anneal(play.env_steps)
        statistics |= episode_statistics(returns, lengths, won)
        statistics["env_steps"] = float(env_steps)
        self._env_steps[iteration + 1] = env_steps
        self._forget(iteration)
        rows = np.concatenate([block.rows for block in blocks])
        return Collected(rows, returns, sides, won, statistics)

    def _forget(self, iteration: int) -> None:
        """Drop publications that neither later iterations nor checkpoints before this one need."""
        oldest = iteration - 2 * self.lag - 1
        for version in [kept for kept in list(self._publications) if kept < oldest]:
            del self._publications[version]
        for number in [kept for kept in list(self._env_steps) if kept < oldest]:
            del self._env_steps[number]

    def _ahead(self, resume_at: int) -> range:
        """Return the earlier versions that iterations from ``resume_at`` on are played with."""
        return range(self.version_of(resume_at), resume_at)

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``load`` resumes at iteration ``resume_at``."""
        versions = self._ahead(resume_at)
        numbers = [*versions, resume_at]
        steps = {"env_steps": np.array([self._env_steps[number] for number in numbers], np.int64)}
        return steps | {
            f"{version}.{section}": values
            for version in versions
            for section, values in self._publications[version].sections.items()
        }

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at iteration ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state is of another algorithm or lag.
        """
        versions = self._ahead(resume_at)
        numbers, steps = [*versions, resume_at], state.get("env_steps", np.empty(0))
        names = {f"{version}.{section}" for version in versions for section in self._acting}
        if steps.shape != (len(numbers),) or not names <= state.keys():
            raise CheckpointUnusable(
                "the checkpoint does not hold the parameters that play ahead; resume with the "
                "algorithm and the collect.lag that wrote it"
            )
        self._env_steps = dict(zip(numbers, map(int, steps), strict=True))
        self._publications = {
            version: Publication(
                version=version,
                sections={section: state[f"{version}.{section}"] for section in self._acting},
            )
            for version in versions
        }

    def doing(self) -> str:
        """Name the copy whose environment is called now, its step and seed; any thread may ask."""
        return self._player.doing() if "_player" in self.__dict__ else ""

    def close(self) -> None:
        """Close the environments that were played in."""
        if "_player" in self.__dict__:
            self._player.close()
