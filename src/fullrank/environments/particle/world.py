"""The physics of the particle worlds: E copies x M agents as arrays, exact to the last bit.

The dynamics are those of the OpenAI multi-agent particle environments [Lowe17]: the velocity is
updated before the position, and contact forces are added one at a time in ascending index of the
other entity. Arrays keep the copies last, so that every operation runs along contiguous memory.
They are NumPy's, or torch's tensors, whose last bits are those of its exponential and logarithm.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.common.types import Array, BoolArray, IntArray
from fullrank.environments.particle.arrays import namespace

TIME_STEP = 0.1
DAMPING = 0.25
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3
"""Softness of a contact: the penetration of two bodies d apart is 1e-3 ln(1 + exp(-d / 1e-3))."""
CONTACT_REACH = 0.746
"""Bodies further apart than this push with exactly 0: exp(-746) is below the least double."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """Body of an entity; all have unit mass."""

    kind: str
    """Kind of entity, for pictures: ``agent``, ``adversary``, ``landmark``, ``obstacle``, ..."""
    size: float
    """Radius of the body."""
    collides: bool = False
    """True if it pushes other colliding bodies."""
    acceleration: float = 0.0
    """Force of a full thrust; 0: it never moves."""
    max_speed: float = math.inf


class World:
    """Positions and velocities of E copies, and their dynamics.

    Args:
        bodies: All bodies; moving ones come before fixed ones.
        copies: E.

    Attributes:
        bodies: All entities, n of them.
        movers: m, entities that move.
        position: Shape (2, n, E).
        velocity: Shape (2, m, E).
    """

    def __init__(self, bodies: Sequence[Body], *, copies: int) -> None:
        self.bodies, self.copies = tuple(bodies), copies
        self.movers = sum(body.acceleration > 0 for body in bodies)
        moving = bodies[: self.movers]
        self.position = np.zeros((2, len(bodies), copies))
        self.velocity = np.zeros((2, self.movers, copies))
        self._acceleration = np.array([[body.acceleration] for body in moving])
        self._max_speed = np.array([[body.max_speed] for body in moving])
        self._limited = bool(np.isfinite(self._max_speed).any())
        size = np.array([body.size for body in bodies])
        self._touch_distance = size[: self.movers, None] + size
        pushed = _pushed(bodies, movers=self.movers)
        self._solid = int(np.flatnonzero(pushed.any(axis=0)).max(initial=-1)) + 1
        self._unpushed = ~pushed
        self._reach = np.where(np.triu(pushed, k=1), self._touch_distance + CONTACT_REACH, 0.0)
        self._relative: Array | None = None
        self._distance: Array | None = None

    @property
    def relative(self) -> Array:
        """Position of entity b relative to mover a, b - a, shape (2, m, n, E)."""
        if self._relative is None:
            self._relative = self.position[:, None] - self.position[:, : self.movers, None]
        return self._relative

    @property
    def distance(self) -> Array:
        """The length of ``relative``, shape (m, n, E)."""
        if self._distance is None:
            self._distance = length(self.relative)
        return self._distance

    def place(self, copies: Sequence[int], *, position: Array, velocity: Array) -> None:
        """Set the state of k copies.

        Args:
            copies: Their indices, k of them.
            position: Shape (2, n, k).
            velocity: Shape (2, m, k).
        """
        self.position[..., copies] = position
        self.velocity[..., copies] = velocity
        self.forget()

    def forget(self) -> None:
        """Compute relative positions and distances anew: positions have changed."""
        self._relative = self._distance = None

    def step(self, thrust: Array) -> None:
        """Advance all copies by 0.1 time units.

        Args:
            thrust: Thrust of each mover, in units of its acceleration, shape (2, m, E).
        """
        force = thrust * self._acceleration
        if self._solid:
            sparse = isinstance(force, np.ndarray)
            force = self._add_contacts(force) if sparse else self._add_all_contacts(force)
        self.velocity *= 1 - DAMPING
        self.velocity += force * TIME_STEP
        if self._limited:
            self.velocity[...] = limited(self.velocity, self._max_speed)
        self.position[:, : self.movers] += self.velocity * TIME_STEP
        self.forget()

    def touching(self) -> BoolArray:
        """Mask of overlapping movers and entities, each mover with itself too, shape (m, n, E)."""
        overlap: BoolArray = self.distance < self._touch_distance[..., None]
        return overlap

    def _add_contacts(self, force: Array) -> Array:
        """Add the contact forces of all near pairs to the control force, shape (2, m, E).

        ``bincount`` adds its weights in the order given. Pairs come in ascending (own, other), so
        each mover receives its control force, then those of lower and of higher entities.
        """
        near = np.flatnonzero(self.distance < self._reach[..., None])
        if not near.size:
            return force
        pair, copy = np.divmod(near, self.copies)
        own, other = np.divmod(pair, len(self.bodies))
        push = self._push(near, self._touch_distance.ravel()[pair])
        receiver = np.concatenate(
            [
                np.arange(self.movers * self.copies),
                other * self.copies + copy,
                own * self.copies + copy,
            ]
        )
        weights = np.concatenate([force.reshape(2, -1), push, -push], axis=1)
        bins = len(self.bodies) * self.copies
        per_axis = np.concatenate([receiver, receiver + bins])
        total = np.asarray(np.bincount(per_axis, weights.ravel(), 2 * bins), dtype=np.float64)
        return total.reshape(2, -1, self.copies)[:, : self.movers]

    def _add_all_contacts(self, force: Array) -> Array:
        """Add the contact forces of all pairs, in the same order, whether or not they are zero.

        The operations do not depend on the positions, so that a device need not ask the host.
        """
        near = slice(self._solid)
        touch_distance = self._touch_distance[:, near, None]
        line, distance = self.relative[:, :, near], self.distance[:, near]
        push: Any = contact_force(line, distance, touch_distance)
        push = push.masked_fill(self._unpushed[:, near, None], 0.0)
        for other in range(self._solid):
            force = force - push[:, :, other]
        return force

    def _push(self, near: IntArray, touch_distance: Array) -> Array:
        """Force of the nearer body on the other one of each pair, shape (2, pairs)."""
        line = self.relative.reshape(2, -1)[:, near]
        return contact_force(line, self.distance.ravel()[near], touch_distance)


def contact_force(line: Array, distance: Array, touch_distance: Array) -> Array:
    """Soft contact force of one body on another.

    Args:
        line: Position of the other relative to the one, shape (2, ...).
        distance: The length of ``line``, shape (...).
        touch_distance: The sum of both sizes, an array that fits (...).

    Returns:
        The force on the other, shape (2, ...).
    """
    xp, softness = namespace(distance), (touch_distance - distance) / CONTACT_MARGIN
    penetration = xp.logaddexp(0 * softness, softness) * CONTACT_MARGIN
    force: Array = CONTACT_FORCE * line / distance * penetration
    return force


def limited(velocity: Array, max_speed: Array) -> Array:
    """Velocities, shape (2, ...), at most as fast as allowed, an array that fits (...)."""
    xp, speed = namespace(velocity), length(velocity)
    fast = speed > max_speed
    slowed = velocity / xp.where(fast, speed, 1.0) * xp.where(fast, max_speed, 1.0)
    result: Array = xp.where(fast, slowed, velocity)
    return result


def length(vectors: Array) -> Array:
    """Euclidean length along the first axis, x and y."""
    xp = namespace(vectors)
    squares = xp.square(vectors)
    result: Array = xp.sqrt(xp.add(squares[0], squares[1], out=squares[0]))
    return result


def _pushed(bodies: Sequence[Body], *, movers: int) -> BoolArray:
    """Pairs of a mover and another entity that push each other, shape (m, n)."""
    collides = np.array([body.collides for body in bodies])
    itself = np.eye(movers, len(bodies)) == 1
    pairs: BoolArray = np.logical_and.outer(collides[:movers], collides) & ~itself
    return pairs
