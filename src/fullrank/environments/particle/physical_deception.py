"""Physical deception [Lowe17], the third task of [Wang21]: adversaries must guess the goal.

Of M agents the first K are adversaries. One of L landmarks, drawn anew in each episode, is the goal
of all; the good agents know it, the adversaries do not. Good agents earn the adversaries' distances
to the goal, summed, less the distance of the nearest of their own; an adversary pays the square of
its own distance, as in the code of [Lowe17]. Nothing collides.

The references have one adversary and L = M - 1, and sum over adversaries in their reward already;
[Wang21] runs K = 4 of M = 8. Nothing else depends on K or L.
"""

from dataclasses import dataclass

from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import register
from fullrank.environments.particle.arrays import least, namespace
from fullrank.environments.particle.environment import GoalEnvironment, ParticleConfig
from fullrank.environments.particle.scene import group, opponents, others, require_landmarks, write
from fullrank.environments.particle.world import Body

AGENT = Body(kind="agent", size=0.15, acceleration=5.0)
ADVERSARY = Body(kind="adversary", size=0.15, acceleration=5.0)
LANDMARK = Body(kind="landmark", size=0.08)


@register("physical_deception")
@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalDeception(ParticleConfig):
    """K adversaries against M - K good agents, L landmarks; M is 8 by default."""

    adversaries: int = 0
    """K, from 1 to M - 1; 0 means half of M."""
    landmarks: int = 0
    """L, at least 1; 0 means M - 1."""

    def make(self, *, agents: int, copies: int) -> "Deception":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        task = "physical_deception"
        good, adversaries = opponents(task, agents=agents, adversaries=self.adversaries)
        landmarks = self.landmarks or good + adversaries - 1
        require_landmarks(task, landmarks, least=1)
        return Deception(
            good, adversaries, landmarks=landmarks, copies=copies, horizon=self.horizon
        )


class Deception(GoalEnvironment):
    """E copies of the task."""

    def __init__(
        self, good: int, adversaries: int, *, landmarks: int, copies: int, horizon: int
    ) -> None:
        agents = good + adversaries
        seen = 2 * landmarks + 2 * (agents - 1)
        specs = [
            *group("adversary", adversaries, observation=seen),
            *group("good", good, observation=2 + seen),
        ]
        bodies = [ADVERSARY] * adversaries + [AGENT] * good + [LANDMARK] * landmarks
        super().__init__(specs, bodies, landmarks=landmarks, copies=copies, horizon=horizon)
        self._adversaries = adversaries
        self._split = adversaries * seen
        self._others = others(agents)

    def observe(self, out: FloatArray) -> None:
        """The goal (good agents only), relative positions of landmarks and others."""
        m, k = len(self.agents), self._adversaries
        landmarks = self.world.relative[:, :, m:]
        company = self.world.relative[:, *self._others]
        write(out[: self._split], landmarks[:, :k], company[:, :k])
        write(out[self._split :], self.to_goal()[:, k:, None], landmarks[:, k:], company[:, k:])

    def reward(self) -> Array:
        """Good: adversaries far from the goal, one of their own near it; adversaries: near it."""
        k = self._adversaries
        distance = self.goal_distance()
        xp = namespace(distance)
        reward: Array = xp.empty_like(distance)
        reward[:k] = -xp.square(self.to_goal()[:, :k]).sum(axis=0)
        reward[k:] = distance[:k].sum(axis=0) - least(distance[k:])
        return reward
