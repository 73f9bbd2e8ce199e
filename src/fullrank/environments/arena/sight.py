"""What an agent of the arena sees: itself, food, and the neighbours within its distance."""

import numpy as np

from fullrank.environments.arena.crowd import Crowd, Surroundings
from fullrank.environments.proximity import NOBODY, ranks
from fullrank.types import FloatArray


def width(*, food: int, neighbours: int) -> int:
    """Entries of an observation with so many places for food and for neighbours."""
    return 5 + 3 * food + 5 * neighbours


def see(crowd: Crowd, around: Surroundings, *, food: int, neighbours: int) -> FloatArray:
    """Observations of all agents.

    Own velocity, position and whether one lives; for each piece of food, nearest first, where it is
    from here and a 0; then, for the neighbours in index order, where all are from here, then their
    velocities, then whether they live. Places that are not needed hold zeros; neighbours for whom
    there is no place are not seen.

    Returns:
        Shape (E, m, 5 + 3 food + 5 neighbours).
    """
    seen = np.zeros((*crowd.live.shape, width(food=food, neighbours=neighbours)), np.float32)
    seen[..., 0:2] = crowd.velocity.transpose(1, 2, 0)
    seen[..., 2:4] = crowd.position.transpose(1, 2, 0)
    seen[..., 4] = crowd.live
    _write_food(seen, crowd, around, food)
    _write_neighbours(seen[..., 5 + 3 * food :], crowd, around, neighbours)
    return seen


def _write_food(seen: FloatArray, crowd: Crowd, around: Surroundings, food: int) -> None:
    index = around.food.which[..., :food]
    copy, agent, place = np.nonzero(index != NOBODY)
    relative = crowd.food[:, copy, index[copy, agent, place]] - crowd.position[:, copy, agent]
    seen[copy, agent, 5 + 3 * place] = relative[0]
    seen[copy, agent, 6 + 3 * place] = relative[1]


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
