"""Predator-prey [Lowe17], the second task of [Wang21]: slow predators chase fast prey.

Of M agents the last K are prey, the others predators; L static obstacles stand in their way.
[Wang21] calls the prey adversaries, as the key ``adversaries`` does; the code of [Lowe17] gives
that name to the predators. The reference has M = 4, K = 1, L = 2; for other numbers its rules are
taken as they are: any catch pays every predator, and all see the velocities of all (other) prey.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import register
from fullrank.environments.particle.arrays import namespace
from fullrank.environments.particle.environment import ParticleConfig, ParticleEnvironment
from fullrank.environments.particle.scene import group, opponents, others, require_landmarks, write
from fullrank.environments.particle.world import Body

PREDATOR = Body(kind="adversary", size=0.075, collides=True, acceleration=3.0, max_speed=1.0)
PREY = Body(kind="agent", size=0.05, collides=True, acceleration=4.0, max_speed=1.3)
OBSTACLE = Body(kind="obstacle", size=0.2, collides=True)


@register("predator_prey")
@dataclass(frozen=True, slots=True, kw_only=True)
class PredatorPrey(ParticleConfig):
    """M - K predators against K prey among L obstacles; M is 8 by default."""

    adversaries: int = 0
    """K, the prey, from 1 to M - 1; 0 means half of M."""
    landmarks: int = 2
    """L, obstacles; 0 or more."""

    def make(self, *, agents: int, copies: int) -> "Chase":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        task = "predator_prey"
        predators, prey = opponents(task, agents=agents, adversaries=self.adversaries)
        require_landmarks(task, self.landmarks, least=0)
        return Chase(predators, prey, landmarks=self.landmarks, copies=copies, horizon=self.horizon)


class Chase(ParticleEnvironment):
    """E copies of the task."""

    def __init__(
        self, predators: int, prey: int, *, landmarks: int, copies: int, horizon: int
    ) -> None:
        agents = predators + prey
        seen = 4 + 2 * landmarks + 2 * (agents - 1)
        specs = [
            *group("predator", predators, observation=seen + 2 * prey),
            *group("prey", prey, observation=seen + 2 * (prey - 1)),
        ]
        bodies = [PREDATOR] * predators + [PREY] * prey + [OBSTACLE] * landmarks
        super().__init__(specs, bodies, copies=copies, horizon=horizon)
        self._predators = predators
        self._split = predators * specs[0].observation_size
        self._others, self._other_prey = others(agents), others(prey)[1]

    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Place agents uniformly, and obstacles a little further inside."""
        position = generator.uniform(-1.0, 1.0, size=(2, len(self.world.bodies)))
        position[:, len(self.agents) :] *= 0.9
        return position

    def observe(self, out: FloatArray) -> None:
        """Own velocity and position, relative obstacles and others, velocities of prey."""
        world, m, p = self.world, len(self.agents), self._predators
        fleeing = world.velocity[:, p:]
        common = (
            world.velocity[:, :, None],
            world.position[:, :m, None],
            world.relative[:, :, m:],
            world.relative[:, *self._others],
        )
        write(out[: self._split], *(part[:, :p] for part in common), fleeing[:, None])
        write(out[self._split :], *(part[:, p:] for part in common), fleeing[:, self._other_prey])

    def reward(self) -> Array:
        """10 to every predator for every catch, -10 to the caught prey, and the cost of leaving."""
        p = self._predators
        xp, caught = namespace(self.world.position), self.world.touching()[:p, p : len(self.agents)]
        catches = caught.sum(axis=0, dtype=xp.float64)
        reward: Array = xp.empty_like(self.world.distance[:, 0])
        reward[:p] = 10.0 * catches.sum(axis=0)
        reward[p:] = -10.0 * catches - _leaving(self.world.position[:, p : len(self.agents)])
        return reward


def _leaving(position: Array) -> Array:
    """Cost of prey near the border at 1 or beyond it, per coordinate.

    Args:
        position: Shape (2, k, E).

    Returns:
        Shape (k, E).
    """
    xp = namespace(position)
    away = xp.abs(position)
    beyond = xp.exp(2 * away - 2).clip(max=10.0)
    price = xp.where(away < 1.0, ((away - 0.9) * 10.0).clip(min=0.0), beyond)
    total: Array = price.sum(axis=0)
    return total
