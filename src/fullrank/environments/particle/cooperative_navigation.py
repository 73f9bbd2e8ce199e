"""Cooperative navigation [Lowe17], the first task of [Wang21]: M agents cover M landmarks.

Differs from its usual descriptions in two points that the reference implementation has: an agent
counts as touching itself (a constant), and every agent earns the sum over all agents.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import register
from fullrank.environments.particle.arrays import least, namespace
from fullrank.environments.particle.environment import ParticleConfig, ParticleEnvironment
from fullrank.environments.particle.scene import group, others, write
from fullrank.environments.particle.world import Body

AGENT = Body(kind="agent", size=0.15, collides=True, acceleration=5.0)
LANDMARK = Body(kind="landmark", size=0.05)
MESSAGE = 2
"""Entries of a message."""


@register("cooperative_navigation")
@dataclass(frozen=True, slots=True, kw_only=True)
class CooperativeNavigation(ParticleConfig):
    """M agents and as many landmarks; 3 by default."""

    def make(self, *, agents: int, copies: int) -> "Navigation":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        return Navigation(agents or 3, copies=copies, horizon=self.horizon)


class Navigation(ParticleEnvironment):
    """E copies of the task."""

    def __init__(self, agents: int, *, copies: int, horizon: int) -> None:
        seen, silence = 4 + 2 * agents + 2 * (agents - 1), MESSAGE * (agents - 1)
        mute = range(seen, seen + silence)
        specs = group("agent", agents, observation=mute.stop, always_zero=mute, side="team")
        super().__init__(
            specs, [AGENT] * agents + [LANDMARK] * agents, copies=copies, horizon=horizon
        )
        self._others = others(agents)
        self._silence = np.zeros((1, silence, copies))

    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Place agents and landmarks uniformly."""
        return generator.uniform(-1.0, 1.0, size=(2, 2 * len(self.agents)))

    def observe(self, out: FloatArray) -> None:
        """Own velocity and position, relative positions of landmarks and others, silence.

        The silence stands for the messages of the others, which are mute in this task.
        """
        world, m = self.world, len(self.agents)
        write(
            out,
            world.velocity[:, :, None],
            world.position[:, :m, None],
            world.relative[:, :, m:],
            world.relative[:, *self._others],
            self._silence,
        )

    def reward(self) -> Array:
        """Minus each landmark's distance to its nearest agent, minus 1 for every touch."""
        m = len(self.agents)
        uncovered = least(self.world.distance[:, m:]).sum(axis=0)
        touches = self.world.touching()[:, :m].sum(axis=(0, 1))
        shared = -m * uncovered - touches
        reward: Array = namespace(shared).concatenate([shared[None]] * m)
        return reward
