"""Cooperative navigation [Lowe17], the first task of [Wang21]: M agents cover M landmarks.

Differs from its usual descriptions in two points that the reference implementation has: an agent
counts as touching itself (a constant), and everybody earns the sum over all agents.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.environments.base import AgentSpec, Discrete, register
from fullrank.environments.particle.environment import ParticleEnvironment
from fullrank.environments.particle.world import Array, Bodies
from fullrank.errors import ConfigError
from fullrank.types import FloatArray, IntArray

AGENT_SIZE = 0.15
LANDMARK_SIZE = 0.05
ACCELERATION = 5.0


@register("cooperative_navigation")
@dataclass(frozen=True, slots=True, kw_only=True)
class CooperativeNavigation:
    """M agents and as many landmarks; 3 unless said otherwise."""

    horizon: int = 25
    """Steps of an episode."""

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise ConfigError(f"cooperative_navigation: horizon must be at least 1: {self.horizon}")

    def make(self, *, agents: int, copies: int) -> ParticleEnvironment:
        """See ``EnvironmentConfig.make``."""
        if agents < 0:
            raise ConfigError(f"cooperative_navigation: agents must be at least 1: {agents}")
        return _Navigation(agents or 3, copies=copies, horizon=self.horizon)


class _Navigation(ParticleEnvironment):
    def __init__(self, agents: int, *, copies: int, horizon: int) -> None:
        specs = [
            AgentSpec(
                name=f"agent_{i}", observation_size=6 * agents, action=Discrete(5, relaxed=True)
            )
            for i in range(agents)
        ]
        super().__init__(specs, _bodies(agents), copies=copies, horizon=horizon)
        self._others = _others(agents)

    def place(self, generator: np.random.Generator) -> Array:
        return generator.uniform(-1.0, 1.0, size=(2, 2 * len(self.agents)))

    def observe(self, out: FloatArray) -> None:
        """Own velocity and position, landmarks and others as seen from here, silence.

        The last 2 (M - 1) entries are the messages of the others, who are mute in this task.
        """
        world, m = self.world, len(self.agents)
        seen = out.reshape(m, 3 * m, 2, self.copies).transpose(2, 0, 1, 3)  # (2, M, 3 M, E)
        seen[:, :, 0] = world.velocity
        seen[:, :, 1] = world.position[:, :m]
        seen[:, :, 2 : 2 + m] = world.relative[:, :, m:]
        seen[:, :, 2 + m : 1 + 2 * m] = world.relative[:, np.arange(m)[:, None], self._others]
        seen[:, :, 1 + 2 * m :] = 0.0

    def reward(self) -> Array:
        """Minus each landmark's distance to its nearest agent, minus 1 for every touch."""
        m = len(self.agents)
        uncovered = self.world.distance[:, m:].min(axis=0).sum(axis=0)
        touches = np.count_nonzero(self.world.touching()[:, :m], axis=(0, 1))
        return np.broadcast_to(-m * uncovered - touches, (m, self.copies))


def _bodies(agents: int) -> Bodies:
    is_agent = np.arange(2 * agents) < agents
    return Bodies(
        size=np.where(is_agent, AGENT_SIZE, LANDMARK_SIZE),
        collides=is_agent,
        acceleration=np.full(agents, ACCELERATION),
        max_speed=np.full(agents, np.inf),
        movable=np.ones(agents, dtype=bool),
    )


def _others(agents: int) -> IntArray:
    """Row i: all agents but i, ascending."""
    everyone = np.tile(np.arange(agents), (agents, 1))
    return everyone[~np.eye(agents, dtype=bool)].reshape(agents, agents - 1)
