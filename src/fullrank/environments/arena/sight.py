"""Observations of the arena: the agent itself, food, and the neighbours within its distance."""

import numpy as np

from fullrank.common.types import FloatArray
from fullrank.environments.arena.crowd import Crowd, Surroundings
from fullrank.environments.proximity import NOBODY, Nearest, ranks


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
    seen = np.zeros((*crowd.live.shape, width(food=food, neighbours=neighbours)), np.float32)
    copy, agent = np.nonzero(around.who)
    own = (*crowd.velocity[:, copy, agent], *crowd.position[:, copy, agent])
    seen[copy, agent, :5] = np.stack([*own, crowd.live[copy, agent]], axis=1)
    _write_food(seen[..., 5:], crowd, around.food, food)
    _write_neighbours(seen[..., 5 + 3 * food :], crowd, around, neighbours)
    return seen


def _write_food(out: FloatArray, crowd: Crowd, nearest: Nearest, food: int) -> None:
    """Write the relative positions of food, 3 entries a piece, and zeros for missing pieces."""
    if not crowd.food.shape[2]:  # if only a part of the arena is simulated
        return
    which = nearest.which[:, :food]
    block = np.zeros((*which.shape, 3), dtype=np.float32)
    for axis in range(2):
        place = crowd.food[axis][nearest.copy[:, None], which]
        here = crowd.position[axis][nearest.copy, nearest.one]
        block[..., axis] = np.where(which == NOBODY, 0.0, place - here[:, None])
    out[nearest.copy, nearest.one, : 3 * food] = block.reshape(len(which), -1)


def _write_neighbours(out: FloatArray, crowd: Crowd, around: Surroundings, places: int) -> None:
    """Write rel. positions (2 a place), velocities (2 a place), lives (1 a place) into ``out``."""
    near = around.agents.where(around.seen)
    rank = ranks(near)
    near, rank = near.where(rank < places), rank[rank < places]
    velocity = crowd.velocity[:, near.copy, near.other]
    for axis in range(2):
        out[near.copy, near.one, 2 * rank + axis] = near.relative[axis]
        out[near.copy, near.one, 2 * (places + rank) + axis] = velocity[axis]
    out[near.copy, near.one, 4 * places + rank] = crowd.live[near.copy, near.other]
