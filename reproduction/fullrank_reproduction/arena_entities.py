"""Which places of an arena's observations belong to whom; they are written in ``sight``."""

import math

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, IntArray
from fullrank.environments.arena.config import Plan
from fullrank.environments.entities import Entities, Kind
from fullrank.environments.local import slots

OWN = 5
"""Velocity, position and whether one lives."""


def entities(plan: Plan) -> Entities:
    """Food, and other agents by what they are.

    Raises:
        ConfigError: Places are taken by whoever is near, who may be of either side.
    """
    agents, places = len(plan.bodies), plan.neighbours_seen
    food = OWN + 3 * np.arange(plan.food_seen)[:, None] + np.arange(2)
    kinds = [
        Kind(
            name="food",
            columns=np.broadcast_to(food, (agents, *food.shape)),
            placed=np.ones((agents, plan.food_seen), dtype=bool),
            blank=True,
        )
    ]
    columns = _neighbours(OWN + 3 * plan.food_seen, places)
    for name, mask in _members(plan).items():
        found = slots(mask)
        kinds.append(Kind(name=name, columns=columns[found], placed=found >= 0, blank=True))
    return Entities(own=np.arange(OWN), kinds=tuple(kinds))


def _neighbours(start: int, places: int) -> IntArray:
    """Relative position, velocity and life of who is in each place, shape (places, 5)."""
    place = start + np.arange(places)
    position = start + 2 * np.arange(places)
    velocity = position + 2 * places
    life = place + 4 * places
    return np.stack([position, position + 1, velocity, velocity + 1, life], axis=1)


def _members(plan: Plan) -> dict[str, BoolArray]:
    """Which places of each agent are for which kind of body, shape (M, places)."""
    kinds = sorted({body.kind for body in plan.bodies})
    agents, places = len(plan.bodies), plan.neighbours_seen
    if len(kinds) == 1:
        return {kinds[0]: np.ones((agents, places), dtype=bool)}
    if places < agents - 1 or plan.traits.sight.min() < 2 * math.sqrt(2) * plan.half_width:
        raise ConfigError(
            "an agent that does not see everybody cannot tell which side is in which place of its "
            "observation; set environment.distance = 100 and environment.neighbours_seen = 0"
        )
    place = np.arange(places)
    other = place + (place >= np.arange(agents)[:, None])
    kind = np.array([body.kind for body in plan.bodies])[other]
    return {name: kind == name for name in kinds}
