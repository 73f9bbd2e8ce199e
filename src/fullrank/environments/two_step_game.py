"""The two-step game of [Rashid18]: the safe choice pays 7, the choice that needs a partner 8.

In the first step, which pays nothing, the action of the first agent decides between two matrix
games, which both agents play in the second step. Game A pays 7 whatever they do, game B pays
[[0, 1], [1, 8]]. The best return is 8. A sum of agents' values cannot represent game B, so that VDN
ends at 7 under full exploration.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec, Discrete, Environment, Step, register

OVER = 3
"""Stage after the end; the stages before are the first step, game A and game B."""
PAYOFF = np.array([np.zeros((2, 2)), np.full((2, 2), 7.0), [[0.0, 1.0], [1.0, 8.0]]])
"""Reward by stage and by the actions of both agents, shape (3, 2, 2)."""


@register("two_step_game")
@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStepGame:
    """Two agents, two steps."""

    def make(self, *, agents: int, copies: int) -> Environment:
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        if agents not in (0, 2):
            raise ConfigError(f"two_step_game is for two agents, M = 2: {agents}")
        return _TwoStepGameEnvironment(copies)


class _TwoStepGameEnvironment:
    """E copies; agents observe the state, a one-hot vector of the stage."""

    state_size, shared_reward = 3, True

    def __init__(self, copies: int) -> None:
        self.agents: tuple[AgentSpec, ...] = tuple(
            AgentSpec(name=f"agent_{i}", observation_size=3, action=Discrete(2)) for i in range(2)
        )
        self.copies = copies
        self._stage = np.full(copies, OVER)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Start episodes, which are all alike; see ``Environment.reset``."""
        self._stage[list(copies)] = 0
        return self._observation()

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        first, second = action.reshape(self.copies, 2, 2).argmax(axis=2).T
        begins = self._stage == 0
        paid = PAYOFF[np.minimum(self._stage, OVER - 1), first, second]
        self._stage = np.where(begins, 1 + first, OVER)
        alive = np.repeat(begins[:, None], 2, axis=1)
        return Step(
            observation=self._observation(),
            reward=np.repeat(paid[:, None], 2, axis=1),
            terminated=~alive,
            alive=alive,
            ended=~begins,
        )

    def state(self) -> FloatArray:
        """See ``Stated``; zeros after the end."""
        state: FloatArray = np.eye(OVER + 1, OVER, dtype=np.float32)[self._stage]
        return state

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _observation(self) -> FloatArray:
        return np.tile(self.state(), (1, 2))
