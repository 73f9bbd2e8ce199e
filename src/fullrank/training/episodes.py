"""Episodes in the copies of an environment, and their returns."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Environment, Step

Array: TypeAlias = NDArray[np.float64]


class Episodes:
    """Episodes in E copies; initially every copy awaits a reset."""

    def __init__(self, environment: Environment) -> None:
        shape = (environment.copies, len(environment.agents))
        self._environment = environment
        self._earned = np.zeros(shape)
        self.alive = np.ones(shape, dtype=bool)
        self.ended = np.ones(environment.copies, dtype=bool)
        size = sum(agent.observation_size for agent in environment.agents)
        self.observation: FloatArray = np.zeros((environment.copies, size), dtype=np.float32)

    def waiting(self) -> IntArray:
        """Return the copies whose episode is over, ascending."""
        return np.flatnonzero(self.ended)

    def begin(self, copies: IntArray, seeds: Sequence[int]) -> None:
        """Reset the given copies, which start new episodes."""
        self.observation = self._environment.reset(seeds, copies.tolist())
        self._earned[copies] = 0.0
        self.alive[copies] = True
        self.ended[copies] = False

    def advance(self, action: FloatArray) -> Step:
        """Step all copies and add up their rewards."""
        step = self._environment.step(action)
        self._earned += step.reward
        self.observation, self.alive, self.ended = (
            step.observation,
            step.alive.copy(),
            step.ended.copy(),
        )
        return step

    def earned(self) -> Array:
        """Return the returns of episodes that ended in the last step, shape (ended copies, M)."""
        return self._earned[self.ended]


def by_side(agents: Sequence[AgentSpec], by_agent: Array) -> dict[str, Array]:
    """Sum over the agents of each side, with sides in order of first appearance."""
    sides = [agent.side for agent in agents]
    return {
        side: by_agent[:, [own == side for own in sides]].sum(axis=1)
        for side in dict.fromkeys(sides)
    }
