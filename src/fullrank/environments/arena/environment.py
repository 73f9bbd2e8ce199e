"""The ``Environment`` of all arena tasks: E copies of an arena."""

from collections.abc import Iterator, Sequence

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import Array, FloatArray
from fullrank.environments.arena.config import ArenaConfig, ArenaLayout
from fullrank.environments.arena.crowd import FOOD, Crowd
from fullrank.environments.arena.effects import Effects, sequential, simultaneous
from fullrank.environments.base import Step, TimeLimit
from fullrank.environments.particle.scene import Scene


class Arena:
    """E copies of one task.

    Dead agents neither move nor earn, but they observe, and their actions change their velocities.

    Attributes:
        crowd: State of all copies.
        respawns: Next positions of eaten food, for each copy.
    """

    def __init__(self, config: ArenaConfig, *, agents: int, copies: int) -> None:
        self.layout = config.layout(agents)
        self.agents, self.copies = self.layout.specs(), copies
        self.config = config
        shape = (copies, len(self.agents))
        self.crowd = Crowd(
            traits=self.layout.traits,
            position=np.zeros((2, *shape)),
            velocity=np.zeros((2, *shape)),
            live=np.ones(shape, dtype=bool),
            food=np.zeros((2, copies, self.layout.food)),
        )
        self.respawns: list[Iterator[Array]] = [iter(())] * copies
        horizon = config.horizon + config.extra_step
        self.horizon = horizon
        self._limit = TimeLimit(agents=len(self.agents), copies=copies, horizon=horizon)

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Start new episodes; see ``Environment.reset``."""
        for seed, copy in zip(seeds, copies, strict=True):
            self._begin(copy, seed)
        self._limit.begin(copies)
        return self.observation()

    def _begin(self, copy: int, seed: int) -> None:
        """Place agents and food uniformly."""
        crowd, half, generator = self.crowd, self.layout.half_width, stream(seed, "arena")
        place = (2, len(self.agents))
        crowd.position[:, copy] = generator.uniform(-half, half, size=place)
        crowd.food[:, copy] = generator.uniform(-half, half, size=(2, self.layout.food))
        moving = bool(self.config.moving_start)
        crowd.velocity[:, copy] = start_velocity(self.layout, generator, place, moving=moving)
        crowd.live[copy] = True
        self.respawns[copy] = _anywhere(stream(seed, "respawn"), half)

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        pushing = np.ones_like(self.crowd.live) if self.config.contacts else None
        choice = action.reshape(self.copies, len(self.agents), 5)
        self.crowd.move(thrust(choice), half_width=self.layout.half_width, pushing=pushing)
        apply = simultaneous if self.config.local_rewards else sequential
        effects = apply(self.crowd, self._effects, self.respawns)
        seen = effects.observation.reshape(self.copies, -1)
        return self._limit.step(observation=seen, reward=effects.reward)

    def _effects(self, crowd: Crowd) -> Effects:
        return self.config.effects(crowd, self.layout, np.ones_like(crowd.live))

    def observation(self) -> FloatArray:
        """The joint observation of the present state, shape (E, sum of observation sizes)."""
        whole = np.ones_like(self.crowd.live)
        return self.config.look(self.crowd, self.layout, whole).reshape(self.copies, -1)

    def scene(self, copy: int) -> Scene:
        """The drawable state of one copy."""
        alive = zip(self.layout.bodies, self.crowd.live[copy].tolist(), strict=True)
        kinds = [body.kind if live else "dead" for body, live in alive]
        bodies = [*self.layout.bodies, *[FOOD] * self.layout.food]
        places = [self.crowd.position[:, copy], self.crowd.food[:, copy]]
        return Scene(
            kinds=(*kinds, *["food"] * self.layout.food),
            size=np.array([body.size for body in bodies]),
            position=np.concatenate(places, axis=1).T,
            half_width=self.layout.half_width,
        )

    def close(self) -> None:
        """Do nothing: no resource is held."""


def thrust(action: FloatArray) -> Array:
    """Net direction, (2, E, m), of the actions none, +x, -x, +y, -y, shape (E, m, 5)."""
    axes = ((1, 2), (3, 4))
    return np.stack([np.subtract(action[..., a], action[..., b], dtype=float) for a, b in axes])


def start_velocity(
    layout: ArenaLayout, generator: np.random.Generator, shape: tuple[int, ...], *, moving: bool
) -> Array:
    """Zero, or uniform if ``moving``."""
    if not moving:
        return np.zeros(shape)
    fastest = 1 + layout.half_width
    return generator.uniform(-fastest, fastest, size=shape)


def _anywhere(generator: np.random.Generator, half_width: float) -> Iterator[Array]:
    while True:
        yield generator.uniform(-half_width, half_width, size=2)
