"""Distances to the nearest agent of some kind."""

import numpy as np

from fullrank.common.types import Array, BoolArray
from fullrank.environments.arena.crowd import Crowd, Surroundings
from fullrank.environments.proximity import nearest


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
