"""Scenarios in which one landmark, drawn anew in each episode, is the goal."""

from collections.abc import Sequence

import numpy as np

from fullrank.common.types import Array
from fullrank.environments.base import AgentSpec
from fullrank.environments.particle.environment import ParticleEnvironment
from fullrank.environments.particle.scene import Scene
from fullrank.environments.particle.world import Body, length


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
