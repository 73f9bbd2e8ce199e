"""A matrix game: two agents choose a row and a column once, and both receive the entry.

``climbing`` is the game of [Claus98]: the best entry, 11, lies between the
worst ones, so that an agent that averages over its partner's choices avoids it. Monotonic mixing of
agents' values cannot represent that. It can represent ``monotonic``, whose best entry is 9 and
whose entries rise along every row and column, though not as a sum of agents' values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Discrete, Environment, Step, register

Payoff: TypeAlias = tuple[tuple[float, ...], ...]

GAMES: dict[str, Payoff] = {
    "climbing": ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0)),
    "monotonic": ((0.0, 1.0, 2.0), (1.0, 3.0, 5.0), (2.0, 5.0, 9.0)),
}


@register("matrix_game")
@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixGame:
    """Two agents, one step."""

    payoff: Literal["climbing", "monotonic"] | Payoff = "climbing"
    """A known game, or the rows of a matrix; rows are actions of the first agent."""

    def __post_init__(self) -> None:
        rows = self._rows()
        if not rows or not rows[0] or any(len(row) != len(rows[0]) for row in rows):
            raise ConfigError(f"environment.payoff needs rows of one length, at least 1: {rows}")

    def _rows(self) -> Payoff:
        return GAMES[self.payoff] if isinstance(self.payoff, str) else self.payoff

    def make(self, *, agents: int, copies: int) -> Environment:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        if agents not in (0, 2):
            raise ConfigError(f"matrix_game is for two agents, M = 2: {agents}")
        return _MatrixGameEnvironment(np.array(self._rows()), copies)


class _MatrixGameEnvironment:
    """E copies; an agent observes only whether it chooses the row or the column, as one-hot."""

    shared_reward = True

    def __init__(self, payoff: NDArray[np.float64], copies: int) -> None:
        self.agents: tuple[AgentSpec, ...] = tuple(
            AgentSpec(name=f"agent_{i}", observation_size=2, action=Discrete(choices))
            for i, choices in enumerate(payoff.shape)
        )
        self.copies, self._payoff = copies, payoff
        self._runs = np.zeros(copies, dtype=bool)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Start episodes, which are all alike; see ``Environment.reset``."""
        self._runs = self._runs.copy()
        self._runs[list(copies)] = True
        return self._observation()

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        rows = len(self._payoff)
        paid = self._payoff[action[:, :rows].argmax(axis=1), action[:, rows:].argmax(axis=1)]
        running = np.repeat(self._runs[:, None], 2, axis=1)
        self._runs = np.zeros(self.copies, dtype=bool)
        return Step(
            observation=self._observation(),
            reward=np.repeat(paid[:, None], 2, axis=1) * running,
            terminated=running,
            alive=np.zeros_like(running),
            ended=np.ones(self.copies, dtype=bool),
        )

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _observation(self) -> FloatArray:
        roles = np.eye(2, dtype=np.float32).reshape(1, 4)
        return roles * self._runs[:, None]
