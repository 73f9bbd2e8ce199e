"""Base of the particle scenarios: episodes of fixed length in a world of E copies."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import AgentSpec, Step
from fullrank.environments.particle.scene import Scene
from fullrank.environments.particle.world import Body, World
from fullrank.environments.time_limit import TimeLimit, require_horizon


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleConfig:
    """Configuration shared by the particle scenarios."""

    horizon: int = 25
    """Steps of an episode."""
    variant: Literal["openai"] = "openai"
    """Source of dynamics and rewards: the original [Lowe17]; others come through PettingZoo."""

    def __post_init__(self) -> None:
        require_horizon(self.horizon)


class ParticleEnvironment(ABC):
    """An ``Environment``; scenarios define starts, observations and rewards.

    Nothing is terminal in these worlds: an episode ends at its horizon, which is a time limit.
    """

    def __init__(
        self, agents: Sequence[AgentSpec], bodies: Sequence[Body], *, copies: int, horizon: int
    ) -> None:
        self.agents = tuple(agents)
        self.copies = copies
        self.world = World(bodies, copies=copies)
        self.horizon = horizon
        self._limit = TimeLimit(agents=len(agents), copies=copies, horizon=horizon)
        self._observation_size = sum(agent.observation_size for agent in agents)

    @abstractmethod
    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Draw one copy's start: set the scenario's own state, return positions, shape (2, n)."""

    def act(self, action: FloatArray) -> None:
        """Apply the actions, shape (sum of action sizes, E)."""
        self.world.step(thrust(action))

    @abstractmethod
    def observe(self, out: FloatArray) -> None:
        """Write the observations into ``out``, shape (sum of observation sizes, E)."""

    @abstractmethod
    def reward(self) -> Array:
        """Rewards of the present state, shape (M, E)."""

    def scene(self, copy: int) -> Scene:
        """The drawable state of one copy."""
        return Scene(
            kinds=tuple(body.kind for body in self.world.bodies),
            size=np.array([body.size for body in self.world.bodies]),
            position=self.world.position[:, :, copy].T.copy(),
        )

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``; agents start at rest."""
        if copies:
            starts = zip(copies, seeds, strict=True)
            placed = [self.begin(copy, stream(seed, "particle")) for copy, seed in starts]
            position = np.stack(placed, axis=-1)
            rest = np.zeros((2, self.world.movers, len(placed)))
            self.world.place(copies, position=position, velocity=rest)
            self._limit.begin(copies)
        return self.observation()

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        self.act(action.T)
        return self._limit.step(observation=self.observation(), reward=self.reward().T)

    def observation(self) -> FloatArray:
        """The joint observation of the present state, shape (E, sum of observation sizes)."""
        seen = np.empty((self._observation_size, self.copies), dtype=np.float32)
        self.observe(seen)
        return np.ascontiguousarray(seen.T)

    def close(self) -> None:  # noqa: B027
        """Do nothing: no resource is held."""


def thrust(action: FloatArray) -> Array:
    """Net direction of the actions none, +x, -x, +y, -y, or any point of their simplex.

    Args:
        action: Shape (5 m, E).

    Returns:
        Shape (2, m, E).
    """
    by_agent = action.reshape(-1, 5, action.shape[1])
    return np.subtract(by_agent[:, 1::2], by_agent[:, 2::2], dtype=np.float64).swapaxes(0, 1)
