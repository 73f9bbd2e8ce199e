"""Free collection as the controller sees it: parameters out, facts of written episodes in.

Collectors play for ever with the newest parameters that they have, and write episodes to replay.
Which episodes an iteration may draw from is decided there; the exploration of a version follows
from the episodes that its last update could draw from, so that an episode is a pure function of
(version, writer, sequence).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.algorithms import Algorithm
from fullrank.algorithms.roles import Annealed
from fullrank.common.errors import CheckpointUnusable
from fullrank.common.types import Array, BoolArray, IntArray
from fullrank.environments import Environment
from fullrank.environments.capabilities import Contested
from fullrank.replay.draw_window import Reach
from fullrank.training.block_player import PlayTerms, published
from fullrank.training.episodes import episode_statistics, team_returns
from fullrank.training.rollouts import Collected

ENV_STEPS = "env_steps"
"""Statistic of an iteration: environment steps that it could draw from, or evicted before."""


class Written(NamedTuple):
    """Report of a collector about episodes that it has written."""

    earned: Array
    """Returns of all agents, shape (episodes, M)."""
    won: BoolArray
    """True for episodes that were won, shape (episodes,)."""
    lengths: IntArray
    """Steps of each episode, shape (episodes,)."""


class FreeRollout:
    """Publications of a run, and the collection of each iteration without its rows.

    Args:
        environment: Tells how returns are counted; it is not stepped.
        algorithm: The run's, with the current parameters.
    """

    def __init__(self, environment: Environment, algorithm: Algorithm) -> None:
        self._environment, self._algorithm = environment, algorithm
        self._env_steps = {0: 0}  # by version, those of the last two

    def publish(self, version: int) -> PlayTerms:
        """Return a copy of the current parameters, which are those of ``version``."""
        return PlayTerms(
            publication=published(self._algorithm, version), env_steps=self._env_steps[version]
        )

    def join(self, iteration: int, reach: Reach, written: Sequence[Written]) -> Collected:
        """Return the collection of an iteration.

        Args:
            iteration: Its number.
            reach: What it may draw from.
            written: What was written since the last one.
        """
        environment, actor = self._environment, self._algorithm.actor
        shape = (0, len(environment.agents))
        earned = np.concatenate([np.zeros(shape), *(report.earned for report in written)])
        returns, sides = team_returns(environment, earned)
        won, statistics = None, dict[str, float]()
        if isinstance(environment, Contested):
            won = np.concatenate([np.zeros(0, bool), *(report.won for report in written)])
        if isinstance(actor, Annealed):
            statistics["epsilon"] = actor.anneal(self._env_steps[iteration])
        if written:
            lengths = np.concatenate([report.lengths for report in written])
            statistics |= episode_statistics(returns, lengths, won)
        ends = reach.newest.number if self._algorithm.problem.episodes is not None else 0
        env_steps = max(self._env_steps[iteration], reach.head - ends)
        self._env_steps = {iteration: self._env_steps[iteration], iteration + 1: env_steps}
        statistics |= {
            ENV_STEPS: float(env_steps),
            "episodes": float(reach.newest.number),
            "lag_max": float(reach.lag),
        }
        rows = np.empty((0, self._algorithm.problem.row_size), np.float32)
        return Collected(rows, returns, sides, won, statistics, newest=reach.newest)

    def repeated(self, iteration: int, statistics: Mapping[str, float | None]) -> None:
        """Go on after a committed iteration with these statistics."""
        self._env_steps = {iteration + 1: int(statistics[ENV_STEPS] or 0)}

    def state(self, *, resume_at: int) -> dict[str, NDArray[Any]]:
        """Return the arrays from which ``load`` resumes at iteration ``resume_at``."""
        return {ENV_STEPS: np.array([self._env_steps[resume_at]], np.int64)}

    def load(self, state: Mapping[str, NDArray[Any]], *, resume_at: int) -> None:
        """Resume at iteration ``resume_at`` from the arrays returned by ``state``.

        Raises:
            CheckpointUnusable: The state is of another mode.
        """
        steps = state.get(ENV_STEPS)
        if steps is None or steps.shape != (1,):
            raise CheckpointUnusable(
                "the checkpoint is not of free collection; resume with the collect.mode that wrote "
                "it"
            )
        self._env_steps = {resume_at: int(steps[0])}
