"""Base of the particle scenarios: episodes of fixed length in a world of E copies."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import AgentSpec, Step, TimeLimit, require_horizon
from fullrank.environments.particle.scene import Scene
from fullrank.environments.particle.world import Body, World, length


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


class GoalEnvironment(ParticleEnvironment):
    """The last L bodies are landmarks, and one of them is the goal.

    Attributes:
        goal: Its index among the landmarks, shape (E,).
    """

    def __init__(
        self,
        agents: Sequence[AgentSpec],
        bodies: Sequence[Body],
        *,
        landmarks: int,
        copies: int,
        horizon: int,
    ) -> None:
        super().__init__(agents, bodies, copies=copies, horizon=horizon)
        self._landmarks = landmarks
        self._first = len(bodies) - landmarks
        self._copy = np.arange(copies)
        self.goal = np.zeros(copies, dtype=np.int64)

    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Place agents and landmarks uniformly, and draw the goal."""
        self.goal[copy] = generator.integers(self._landmarks)
        return generator.uniform(-1.0, 1.0, size=(2, len(self.world.bodies)))

    def to_goal(self) -> Array:
        """Position of the goal relative to each mover, shape (2, m, E)."""
        world = self.world
        goal = world.position[:, self._first + self.goal, self._copy]
        return goal[:, None] - world.position[:, : world.movers]

    def goal_distance(self) -> Array:
        """Distance of each mover to the goal, shape (m, E)."""
        return length(self.to_goal())

    def scene(self, copy: int) -> Scene:
        """The drawable state, with the goal."""
        return super().scene(copy).with_goal(self._first + int(self.goal[copy]))
