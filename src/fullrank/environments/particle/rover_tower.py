"""Rover Tower [Iqbal19], the task of large teams: towers guide blind rovers by radio.

Of M agents the first half are rovers, the others towers. Each episode pairs every tower with one
rover and gives it one of L landmarks as that rover's goal (several may be given the same). A rover
sees neither landmarks nor others, only its own motion, its tower, and the last message of that
tower.
Both of a pair earn minus the squared distance q of the rover to its goal, and 10 more where q is
less than 1.5 times the sum of their radii: a square is compared with a length, as in the reference.
The reference also applies a rover's acceleration twice.

The references have M = 8 and L = 6; for other M the identities of partners are one-hot vectors of
length M / 2, and nothing else changes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, FloatArray
from fullrank.environments.base import register
from fullrank.environments.particle.arrays import namespace
from fullrank.environments.particle.environment import (
    ParticleConfig,
    ParticleEnvironment,
    thrust,
)
from fullrank.environments.particle.scene import (
    MOVES,
    Scene,
    group,
    one_hot,
    require_landmarks,
    said,
    write,
)
from fullrank.environments.particle.world import Body

SYMBOLS = MOVES.n
ROVER = Body(kind="agent", size=0.075, acceleration=1.5, max_speed=1.0)
TOWER = Body(kind="speaker", size=0.075)
LANDMARK = Body(kind="landmark", size=0.04)
ARRIVAL = 1.5 * (ROVER.size + LANDMARK.size)


@register("rover_tower")
@dataclass(frozen=True, slots=True, kw_only=True)
class RoverTower(ParticleConfig):
    """M / 2 rovers and as many towers, L landmarks; M is 8 by default."""

    landmarks: int = 6
    """L, at least 1."""

    def make(self, *, agents: int, copies: int) -> "Guidance":
        """Make the copies of the task; see ``EnvironmentConfig.make``."""
        if agents % 2:
            raise ConfigError(
                f"rover_tower: every rover has its tower, so M must be even, at least 2: {agents}"
            )
        require_landmarks("rover_tower", self.landmarks, least=1)
        return Guidance(
            (agents or 8) // 2, landmarks=self.landmarks, copies=copies, horizon=self.horizon
        )


class Guidance(ParticleEnvironment):
    """E copies of the task.

    Attributes:
        tower_rover: The rover of each tower, shape (M / 2, E).
        tower_goal: Its landmark, shape (M / 2, E).
        message: Last message of each tower, shape (M / 2, 5, E).
    """

    def __init__(self, pairs: int, *, landmarks: int, copies: int, horizon: int) -> None:
        specs = [
            *group("rover", pairs, observation=pairs + SYMBOLS + 4, side="team"),
            *group("tower", pairs, observation=pairs + 4, side="team"),
        ]
        bodies = [ROVER] * pairs + [TOWER] * pairs + [LANDMARK] * landmarks
        super().__init__(specs, bodies, copies=copies, horizon=horizon)
        self._landmarks = landmarks
        self._copy, self._pairs = np.arange(copies), np.arange(pairs)
        self.tower_rover = np.tile(np.arange(pairs)[:, None], (1, copies))
        self.tower_goal = np.zeros((pairs, copies), dtype=np.int64)
        self.message = np.zeros((pairs, SYMBOLS, copies))

    def begin(self, copy: int, generator: np.random.Generator) -> Array:
        """Clear messages, draw pairs and goals, and place all entities uniformly."""
        pairs = len(self.message)
        self.message[:, :, copy] = 0.0
        self.tower_rover[:, copy] = generator.permutation(pairs)
        self.tower_goal[:, copy] = generator.integers(self._landmarks, size=pairs)
        return generator.uniform(-1.0, 1.0, size=(2, len(self.world.bodies)))

    def started(self) -> tuple[NDArray[Any], ...]:
        """State that starts set, with pairs, goals and messages."""
        return *super().started(), self.tower_rover, self.tower_goal, self.message

    def act(self, action: FloatArray) -> None:
        """Move the rovers and store the messages of the towers."""
        half = len(action) // 2
        self.message[...] = action[half:].reshape(self.message.shape)
        self.world.step(ROVER.acceleration * thrust(action[:half], self._thrust))

    def observe(self, out: FloatArray) -> None:
        """Rover: its tower and message, own position and velocity. Tower: rover and goal."""
        world, pairs = self.world, len(self.message)
        tower = namespace(self.tower_rover).argsort(self.tower_rover, axis=0)
        rovers = pairs * self.agents[0].observation_size
        write(
            out[:rovers],
            one_hot(tower, self._pairs),
            self.message[tower, :, self._copy].swapaxes(1, 2),
            world.position[:, :pairs, None],
            world.velocity[:, :, None],
        )
        rover, goal = self._ends()
        identity = one_hot(self.tower_rover, self._pairs)
        write(out[rovers:], identity, rover[:, :, None], goal[:, :, None])

    def reward(self) -> Array:
        """Minus the squared distance of the pair's rover to its goal, 10 more near it."""
        rover, goal = self._ends()
        xp = namespace(rover)
        squared = xp.square(rover - goal).sum(axis=0)
        tower = xp.where(squared < ARRIVAL, 10.0 - squared, -squared)
        reward: Array = xp.concatenate([tower, tower])
        reward[self.tower_rover, self._copy] = tower
        return reward

    def _ends(self) -> tuple[Array, Array]:
        """Positions of each tower's rover and of its goal, both of shape (2, M / 2, E)."""
        position, pairs = self.world.position, len(self.message)
        rover = position[:, self.tower_rover, self._copy]
        return rover, position[:, 2 * pairs + self.tower_goal, self._copy]

    def scene(self, copy: int) -> Scene:
        """The drawable state, with links from towers to rovers and from rovers to goals."""
        pairs = len(self.message)
        towers = pairs + np.arange(pairs)
        rovers, goals = self.tower_rover[:, copy], 2 * pairs + self.tower_goal[:, copy]
        links = np.concatenate([np.stack([towers, rovers], 1), np.stack([rovers, goals], 1)])
        scene = super().scene(copy)
        for goal in goals.tolist():
            scene = scene.with_goal(goal)
        return scene._replace(
            links=tuple((int(one), int(other)) for one, other in links),
            labels=said(towers.tolist(), self.message[:, :, copy]),
            zones=dict.fromkeys(goals.tolist(), float(np.sqrt(ARRIVAL))),
        )
