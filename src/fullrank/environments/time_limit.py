"""Episodes of a fixed length without terminal states."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments.base import Step


class TimeLimit:
    """Counts the steps of E copies of M agents, which all act until their episode ends.

    Args:
        agents: M.
        copies: E.
        horizon: Steps of an episode.
    """

    def __init__(self, *, agents: int, copies: int, horizon: int) -> None:
        self._horizon = horizon
        self._steps = np.zeros(copies, dtype=np.int64)
        self._none = np.zeros((copies, agents), dtype=bool)
        self._all = ~self._none
        self._none.flags.writeable = self._all.flags.writeable = False

    def begin(self, copies: Sequence[int]) -> None:
        """Start episodes in these copies."""
        self._steps[list(copies)] = 0

    def step(self, *, observation: FloatArray, reward: NDArray[np.float64]) -> Step:
        """Count a step of every copy; returns its ``Step``."""
        self._steps += 1
        return Step(
            observation=observation,
            reward=reward,
            terminated=self._none,
            alive=self._all,
            ended=self._steps >= self._horizon,
        )


def require_horizon(horizon: int) -> None:
    """Raise ``ConfigError`` unless an episode has a step."""
    if horizon < 1:
        raise ConfigError(f"environment.horizon must be at least 1: {horizon}")
