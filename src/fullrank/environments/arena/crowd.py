"""Agents and food in a walled square as arrays of E copies: motion, proximity, observations.

The dynamics are those of ``particle.world``, in a square whose walls agents cannot cross: positions
are cut to it, one coordinate at a time; velocities continue. Dead agents keep their place; their
velocity follows their actions. Copies come before agents in the arrays, so that the pairs of an
agent lie side by side.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.particle.world import (
    CONTACT_REACH,
    DAMPING,
    TIME_STEP,
    Body,
    contact_force,
    limited,
)
from fullrank.environments.proximity import ABSENT, Nearest, Pairs, nearest, pairs, ranks

FOOD = Body(kind="food", size=0.03)


class Traits(NamedTuple):
    """Traits of agents; arrays of shape (1, m), or (E, m) where copies hold different agents."""

    size: Array
    acceleration: Array
    max_speed: Array
    sight: Array
    """d, distance up to which others are neighbours."""
    adversary: BoolArray

    def take(self, rows: IntArray | int, agents: IntArray | slice = slice(None)) -> "Traits":
        """Traits of some copies, or of some agents."""
        return Traits(
            size=self.size[rows, agents],
            acceleration=self.acceleration[rows, agents],
            max_speed=self.max_speed[rows, agents],
            sight=self.sight[rows, agents],
            adversary=self.adversary[rows, agents],
        )


@dataclass(slots=True, kw_only=True)
class Crowd:
    """E copies of m agents and l pieces of food; absent ones are at NaN."""

    traits: Traits
    position: Array
    """Positions of agents, shape (2, E, m)."""
    velocity: Array
    """Velocities of agents, shape (2, E, m)."""
    live: BoolArray
    """Mask of living agents, shape (E, m)."""
    food: Array
    """Positions of food, shape (2, E, l)."""

    def of(self, copies: IntArray) -> "Crowd":
        """A crowd of some of the copies."""
        shared = len(self.traits.size) == 1
        return Crowd(
            traits=self.traits if shared else self.traits.take(copies),
            position=self.position[:, copies],
            velocity=self.velocity[:, copies],
            live=self.live[copies],
            food=self.food[:, copies],
        )

    def trait(self, values: Array) -> Array:
        """A trait of every agent, shape (E, m)."""
        return np.broadcast_to(values, self.live.shape)

    def move(self, thrust: Array, *, half_width: float, pushing: BoolArray | None = None) -> None:
        """Advance all by 0.1 time units.

        Args:
            thrust: Thrust of each agent, in units of its acceleration, shape (2, E, m).
            half_width: R, half the side of the square.
            pushing: Agents that push each other where bodies overlap, shape (E, m); None: none.
        """
        force = thrust * self.traits.acceleration
        if pushing is not None:
            force = self._pushed(force, np.where(pushing, self.position, np.nan))
        velocity = self.velocity * (1 - DAMPING) + force * TIME_STEP
        self.velocity = limited(velocity, self.traits.max_speed)
        moved = np.clip(self.position + self.velocity * TIME_STEP, -half_width, half_width)
        self.position = np.where(self.live, moved, self.position)

    def _pushed(self, force: Array, position: Array) -> Array:
        """Add the forces of other agents one at a time, in ascending order.

        Bodies at equal positions, as in a corner, do not push: there is no direction.
        """
        reach = 2 * float(self.traits.size.max()) + CONTACT_REACH
        near = pairs(position, position, reach)
        near = near.where(near.distance > 0)
        push = -contact_force(near.relative, near.distance, self.touch_distance(near))
        own = np.arange(self.live.size)
        receiver = np.concatenate([own, near.copy * self.live.shape[1] + near.one])
        weights = np.concatenate([force.reshape(2, -1), push], axis=1)
        x, y = (np.bincount(receiver, weight, self.live.size) for weight in weights)
        total: Array = np.concatenate([x, y]).astype(np.float64, copy=False).reshape(force.shape)
        return total

    def ends(self, near: Pairs) -> tuple[IntArray, IntArray]:
        """Flat indices (copy, agent) of both agents of each pair, shape (n,) each."""
        start = near.copy * self.live.shape[1]
        return start + near.one, start + near.other

    def touch_distance(self, near: Pairs) -> Array:
        """Sum of both agents' sizes, shape (n,)."""
        size = self.trait(self.traits.size)
        one, other = self.ends(near)
        total: Array = size.take(one) + size.take(other)
        return total


def apart(near: Pairs) -> Pairs:
    """Drop the pairs of an agent with itself."""
    return near.where(near.one != near.other)


class Surroundings(NamedTuple):
    """Surroundings of agents of a crowd."""

    who: BoolArray
    """Mask of the agents, shape (E, m)."""
    agents: Pairs
    """Pairs of agents of which the first sees or touches the second."""
    touching: BoolArray
    """Mask of the pairs that overlap, shape (n,)."""
    seen: BoolArray
    """Mask of the pairs in which the first sees the second, shape (n,)."""
    food: Nearest
    """The nearest food of each agent."""


def look_around(crowd: Crowd, who: BoolArray, *, food: int, food_distance: float) -> Surroundings:
    """Find the surroundings of agents.

    Args:
        crowd: E copies of m agents.
        who: Mask of the agents, shape (E, m).
        food: Number of nearest pieces of food, at least 1.
        food_distance: Largest distance of food.
    """
    size, sight = crowd.trait(crowd.traits.size), crowd.trait(crowd.traits.sight)
    widest = float(size.max())
    reach = np.maximum(sight, size + widest)
    looking = np.where(who, crowd.position, np.nan)
    near = apart(pairs(looking, crowd.position, reach))
    return Surroundings(
        who=who,
        agents=near,
        touching=near.distance < crowd.touch_distance(near),
        seen=near.distance <= sight.take(crowd.ends(near)[0]),
        food=nearest(looking, crowd.food, food, limit=food_distance),
    )


def meals(crowd: Crowd, who: BoolArray) -> Pairs:
    """Agents of a mask, shape (E, m), and the food that they touch."""
    touch_distance = crowd.trait(crowd.traits.size) + FOOD.size
    near = pairs(np.where(who, crowd.position, np.nan), crowd.food, touch_distance)
    return near.where(near.distance < touch_distance[near.copy, near.one])


def width(*, food: int, neighbours: int) -> int:
    """Entries of an observation with the given numbers of places for food and for neighbours."""
    return 5 + 3 * food + 5 * neighbours


def see(crowd: Crowd, around: Surroundings, *, food: int, neighbours: int) -> FloatArray:
    """Observations of the agents in ``around.who``; zeros for the others.

    Own velocity, position and life (1 or 0); for each piece of food, nearest first, its relative
    position and a 0; then, for the neighbours in index order, all relative positions, all
    velocities, and all lives. Unused places hold zeros; neighbours without a place are not seen.

    Returns:
        Shape (E, m, 5 + 3 food + 5 neighbours).
    """
    seen = np.zeros((crowd.live.size, width(food=food, neighbours=neighbours)), np.float32)
    agent = np.flatnonzero(around.who)
    own = *crowd.velocity, *crowd.position, crowd.live
    for entry, values in enumerate(own):
        seen[agent, entry] = values.take(agent)
    _write_food(seen, crowd, around.food, food)
    _write_neighbours(seen, crowd, around, neighbours)
    return seen.reshape(*crowd.live.shape, -1)


def _write_food(seen: FloatArray, crowd: Crowd, nearest: Nearest, food: int) -> None:
    """Write the relative positions of food, 3 entries a piece, and zeros for missing pieces."""
    pieces = crowd.food.shape[2]
    if not pieces:  # if only a part of the arena is simulated
        return
    agent, which = nearest.copy * crowd.live.shape[1] + nearest.one, nearest.which[:, :food]
    piece = nearest.copy[:, None] * pieces + which
    block = np.zeros((*which.shape, 3), dtype=np.float32)
    for axis in range(2):
        relative = crowd.food[axis].take(piece) - crowd.position[axis].take(agent)[:, None]
        block[..., axis] = np.where(which == ABSENT, 0.0, relative)
    seen[agent, 5 : 5 + 3 * food] = block.reshape(len(which), -1)


def _write_neighbours(seen: FloatArray, crowd: Crowd, around: Surroundings, places: int) -> None:
    """Write rel. positions (2 a place), velocities (2 a place), lives (1 a place), from the end."""
    near = around.agents.where(around.seen)
    rank = ranks(near)
    near, rank = near.where(rank < places), rank[rank < places]
    one, other = crowd.ends(near)
    end = (one + 1) * seen.shape[1]
    entry, flat = end - 5 * places + 2 * rank, seen.reshape(-1)
    for axis in range(2):
        flat[entry + axis] = near.relative[axis]
        flat[entry + 2 * places + axis] = crowd.velocity[axis].take(other)
    flat[end - places + rank] = crowd.live.take(other)


def distance_to_nearest(
    crowd: Crowd, around: Surroundings, seeking: BoolArray, sought: BoolArray, *, local: bool
) -> Array:
    """Distance of each seeking agent to the nearest sought one, 0 if there is none; 0 for others.

    Args:
        crowd: E copies of m agents.
        around: The neighbourhoods of the agents.
        seeking: Mask of the seeking agents, shape (E, m).
        sought: Mask of the sought agents, shape (E, m).
        local: Only neighbours count.

    Returns:
        Shape (E, m).
    """
    if local:
        near = around.agents.where(around.seen)
        near = near.where(seeking[near.copy, near.one] & sought[near.copy, near.other])
        away = np.full(seeking.shape, np.inf)
        np.minimum.at(away, (near.copy, near.one), near.distance)
    else:
        one, other = (np.where(mask, crowd.position, np.nan) for mask in (seeking, sought))
        away = nearest(one, other, 1).distance(*seeking.shape)
    return np.where(np.isinf(away), 0.0, away)
