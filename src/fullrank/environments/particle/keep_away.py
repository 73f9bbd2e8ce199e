"""Keep away [Lowe17], the fourth task of [Wang21]: adversaries push others off an unknown goal.

Of M agents the first K are adversaries. One of L landmarks, drawn anew in each episode, is the goal
of the good agents, who know it. A good agent pays its distance to the goal; an adversary pays its
own and earns that of the nearest good agent. Agents collide, landmarks do not.

The references have one agent on either side and two landmarks, told apart by colour: landmark i is
bright in component i + 1 of three, and so is a good agent's own colour for its goal. Colours end
there, so for L > 2 both are one-hot vectors of length L instead; nothing else depends on M, K or L.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import register
from fullrank.environments.particle.arrays import least
from fullrank.environments.particle.environment import GoalEnvironment, ParticleConfig
from fullrank.environments.particle.scene import group, opponents, others, require_landmarks, write
from fullrank.environments.particle.world import Body

AGENT = Body(kind="agent", size=0.05, collides=True, acceleration=5.0)
ADVERSARY = Body(kind="adversary", size=0.05, collides=True, acceleration=5.0)
LANDMARK = Body(kind="landmark", size=0.05)


@register("keep_away")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeepAway(ParticleConfig):
    """K adversaries against M - K good agents, L landmarks; M is 8 by default."""

    adversaries: int = 0
    """K, from 1 to M - 1; 0 means half of M."""
    landmarks: int = 2
    """L, at least 1; more than 2 are told apart by one-hot vectors instead of colours."""

    def make(self, *, agents: int, copies: int) -> "Pushing":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        task = "keep_away"
        good, adversaries = opponents(task, agents=agents, adversaries=self.adversaries)
        require_landmarks(task, self.landmarks, least=1)
        return Pushing(
            good, adversaries, landmarks=self.landmarks, copies=copies, horizon=self.horizon
        )


class Pushing(GoalEnvironment):
    """E copies of the task."""

    def __init__(
        self, good: int, adversaries: int, *, landmarks: int, copies: int, horizon: int
    ) -> None:
        agents = good + adversaries
        self._goal_colours, colours = _colours(landmarks)
        seen = 2 + 2 * landmarks + 2 * (agents - 1)
        before = 2 + 2 + colours.shape[1] + 2 * landmarks
        black = (before + np.flatnonzero(colours.ravel() == 0)).tolist()
        observed = 2 + colours.shape[1] + colours.size
        specs = [
            *group("adversary", adversaries, observation=seen),
            *group("good", good, observation=seen + observed, always_zero=black),
        ]
        bodies = [ADVERSARY] * adversaries + [AGENT] * good + [LANDMARK] * landmarks
        super().__init__(specs, bodies, landmarks=landmarks, copies=copies, horizon=horizon)
        self._adversaries = adversaries
        self._split = adversaries * seen
        self._others = others(agents)
        self._colours = np.broadcast_to(colours.reshape(1, -1, 1), (1, colours.size, copies))

    def observe(self, out: FloatArray) -> None:
        """Own velocity, relative landmarks and others; good: goal and colours too."""
        world, m, k = self.world, len(self.agents), self._adversaries
        velocity, landmarks = world.velocity[:, :, None], world.relative[:, :, m:]
        company = world.relative[:, *self._others]
        write(out[: self._split], velocity[:, :k], landmarks[:, :k], company[:, :k])
        write(
            out[self._split :],
            velocity[:, k:],
            self.to_goal()[:, k:, None],
            self._goal_colours[self.goal].T[None],
            landmarks[:, k:],
            self._colours,
            company[:, k:],
        )

    def reward(self) -> Array:
        """Minus the distance to the goal; adversaries add that of the nearest good agent."""
        k = self._adversaries
        distance = self.goal_distance()
        reward = -distance
        reward[:k] += least(distance[k:])
        return reward


def _colours(landmarks: int) -> tuple[Array, Array]:
    """Colours of a good agent with goal i, and of landmark i, both of shape (L, components)."""
    if landmarks > 2:
        return np.eye(landmarks), np.eye(landmarks)
    own = np.eye(3)[1 : 1 + landmarks]
    return 0.25 + 0.5 * own, 0.1 + 0.8 * own
