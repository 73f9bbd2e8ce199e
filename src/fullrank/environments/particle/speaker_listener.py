"""Cooperative communication [Lowe17]: a speaker that knows the goal, and a listener that moves.

The speaker sees the colour of the goal, one of three landmarks, and says one of three symbols; the
listener hears it in its next observation. Both earn twice minus the squared distance of the
listener to the goal: the reference implementation sums the reward that they share.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import Discrete, register
from fullrank.environments.particle.arrays import namespace
from fullrank.environments.particle.environment import GoalEnvironment, ParticleConfig, thrust
from fullrank.environments.particle.scene import Scene, group, said, write
from fullrank.environments.particle.world import Body

LISTENER = Body(kind="agent", size=0.075, acceleration=5.0)
SPEAKER = Body(kind="speaker", size=0.075)
LANDMARK = Body(kind="landmark", size=0.04)
LANDMARKS = 3
SYMBOLS = 3


@register("speaker_listener")
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerListener(ParticleConfig):
    """Two agents, three landmarks, three symbols."""

    def make(self, *, agents: int, copies: int) -> "Talk":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        if agents not in (0, 2):
            raise ConfigError(f"speaker_listener: one speaks and one listens, so M = 2: {agents}")
        return Talk(copies=copies, horizon=self.horizon)


class Talk(GoalEnvironment):
    """E copies of the task.

    Attributes:
        message: Last message, shape (3, E).
    """

    def __init__(self, *, copies: int, horizon: int) -> None:
        symbols = Discrete(SYMBOLS, relaxed=True)
        heard = 2 + 2 * LANDMARKS + SYMBOLS
        specs = [
            *group("speaker", 1, observation=3, action=symbols, side="team"),
            *group("listener", 1, observation=heard, side="team"),
        ]
        bodies = [LISTENER, SPEAKER] + [LANDMARK] * LANDMARKS
        super().__init__(specs, bodies, landmarks=LANDMARKS, copies=copies, horizon=horizon)
        self.message = np.zeros((SYMBOLS, copies))
        self._colours = 0.15 + 0.5 * np.eye(LANDMARKS)

    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Clear the message, place all entities uniformly, and draw the goal."""
        self.message[:, copy] = 0.0
        return super().begin(copy, generator)

    def started(self) -> tuple[NDArray[Any], ...]:
        """State that starts set, with goal and message."""
        return *super().started(), self.message

    def act(self, action: FloatArray) -> None:
        """Store the speaker's three entries, which come first, and move the listener."""
        self.message[...] = action[:SYMBOLS]
        self.world.step(thrust(action[SYMBOLS:], self._thrust))

    def observe(self, out: FloatArray) -> None:
        """Speaker: the goal's colour. Listener: own velocity, landmarks, message."""
        out[:3] = self._colours[self.goal].T
        landmarks = self.world.relative[:, :, 2:]
        write(out[3:], self.world.velocity[:, :, None], landmarks, self.message[None])

    def reward(self) -> Array:
        """Twice minus the squared distance of the listener to the goal."""
        to_goal = self.to_goal()[:, 0]
        xp = namespace(to_goal)
        shared = -2.0 * xp.square(to_goal).sum(axis=0)
        reward: Array = xp.concatenate([shared[None]] * 2)
        return reward

    def scene(self, copy: int) -> Scene:
        """The drawable state, with the largest symbol."""
        return super().scene(copy)._replace(labels=said([1], self.message[None, :, copy]))
