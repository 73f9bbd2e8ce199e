"""The physics of the particle worlds: E copies x M agents as arrays, exact to the last bit.

The dynamics are those of the OpenAI multi-agent particle environments [Lowe17]: the velocity is
updated before the position, and contact forces are added one at a time in ascending index of the
other entity. Arrays keep the copies last, so that every operation runs along contiguous memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fullrank.types import BoolArray, FloatArray, IntArray

Array = NDArray[np.float64]

TIME_STEP = 0.1
DAMPING = 0.25
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3
"""Softness of a contact: the penetration of two bodies d apart is 1e-3 ln(1 + exp(-d / 1e-3))."""
CONTACT_REACH = 0.746
"""Bodies further apart than this push with exactly 0: exp(-746) is below the least double."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """What the entities are made of: M agents first, then the landmarks, n in all."""

    size: Array
    """Radii, shape (n,)."""
    collides: BoolArray
    """Shape (n,)."""
    acceleration: Array
    """Force of a full action, shape (M,); agents have unit mass."""
    max_speed: Array
    """Shape (M,), infinite where there is no limit."""
    movable: BoolArray
    """Shape (M,); landmarks never move."""


class World:
    """Positions and velocities of E copies, and what follows from them.

    Attributes:
        position: Shape (2, n, E).
        velocity: Shape (2, M, E).
        relative: Entity b as seen from agent a, position b - position a, shape (2, M, n, E).
        distance: Its length, shape (M, n, E).
    """

    def __init__(self, bodies: Bodies, *, copies: int) -> None:
        self.agents, self.entities, self.copies = len(bodies.movable), len(bodies.size), copies
        self.position = np.zeros((2, self.entities, copies))
        self.velocity = np.zeros((2, self.agents, copies))
        self._acceleration = bodies.acceleration[:, None]
        self._max_speed = bodies.max_speed[:, None]
        self._limited = bool(np.isfinite(bodies.max_speed).any())
        self._frozen = np.flatnonzero(~bodies.movable)
        self._touch_distance = bodies.size[: self.agents, None] + bodies.size
        self._reach = np.where(_contacts(bodies), self._touch_distance + CONTACT_REACH, 0.0)
        self._survey()

    def place(self, copies: Sequence[int], *, position: Array, velocity: Array) -> None:
        """Set the state of k copies.

        Args:
            copies: Their indices, k of them.
            position: Shape (2, n, k).
            velocity: Shape (2, M, k).
        """
        self.position[..., copies] = position
        self.velocity[..., copies] = velocity
        self._survey()

    def step(self, action: FloatArray) -> None:
        """Advance all copies by 0.1 time units.

        Args:
            action: Five entries for each agent, shape (M, 5, E): nothing, +x, -x, +y, -y; any
                point of the simplex.
        """
        thrust = np.subtract(action[:, 1::2], action[:, 2::2], dtype=np.float64).swapaxes(0, 1)
        force = self._add_contacts(thrust * self._acceleration)
        velocity = self.velocity * (1 - DAMPING) + force * TIME_STEP
        if self._limited:
            velocity = self._limit(velocity)
        velocity[:, self._frozen] = self.velocity[:, self._frozen]
        self.velocity = velocity
        moved = velocity * TIME_STEP
        moved[:, self._frozen] = 0.0
        self.position[:, : self.agents] += moved
        self._survey()

    def touching(self) -> BoolArray:
        """Which agents and entities overlap (an agent overlaps itself), shape (M, n, E)."""
        overlap: BoolArray = self.distance < self._touch_distance[..., None]
        return overlap

    def _survey(self) -> None:
        self.relative = self.position[:, None] - self.position[:, : self.agents, None]
        squares = np.square(self.relative)
        self.distance = np.sqrt(np.add(squares[0], squares[1], out=squares[0]))

    def _add_contacts(self, force: Array) -> Array:
        """Add the contact forces of all pairs to the control force, shape (2, M, E).

        ``bincount`` adds its weights in the order given. Pairs come in ascending (own, other), so
        each agent receives its control force, then what lower entities do, then higher ones.
        """
        near = np.flatnonzero(self.distance < self._reach[..., None])
        if not near.size:
            return force
        pair, copy = np.divmod(near, self.copies)
        own, other = np.divmod(pair, self.entities)
        push = self._push(near, self._touch_distance.ravel()[pair])
        receiver = np.concatenate(
            [
                np.arange(self.agents * self.copies),
                other * self.copies + copy,
                own * self.copies + copy,
            ]
        )
        weights = np.concatenate([force.reshape(2, -1), push, -push], axis=1)
        bins = self.entities * self.copies
        per_axis = np.concatenate([receiver, receiver + bins])
        total = np.asarray(np.bincount(per_axis, weights.ravel(), 2 * bins), dtype=np.float64)
        return total.reshape(2, self.entities, self.copies)[:, : self.agents]

    def _push(self, near: IntArray, touch_distance: Array) -> Array:
        """Force of the nearer body on the other one of each pair, shape (2, pairs)."""
        distance = self.distance.ravel()[near]
        softness = -(distance - touch_distance) / CONTACT_MARGIN
        penetration = np.logaddexp(0, softness) * CONTACT_MARGIN
        line = self.relative.reshape(2, -1)[:, near]
        push: Array = CONTACT_FORCE * line / distance * penetration
        return push

    def _limit(self, velocity: Array) -> Array:
        speed = np.sqrt(np.square(velocity[0]) + np.square(velocity[1]))
        fast = speed > self._max_speed
        slowed = velocity / np.where(fast, speed, 1.0) * np.where(fast, self._max_speed, 1.0)
        return np.where(fast, slowed, velocity)


def _contacts(bodies: Bodies) -> BoolArray:
    """Pairs own < other that push each other, shape (M, n)."""
    agents, entities = len(bodies.movable), len(bodies.size)
    movable = np.concatenate([bodies.movable, np.zeros(entities - agents, dtype=bool)])
    pushes = np.logical_and.outer(bodies.collides[:agents], bodies.collides)
    moves = np.logical_or.outer(bodies.movable, movable)
    return np.triu(pushes & moves, k=1)
