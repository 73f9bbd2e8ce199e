"""Movement of one tick: towards targets or as ordered, around each other, inside the walls.

Every unit walks in a straight line. Units on the same level that overlap are pushed apart along
the line of their centres; the unit that moves gives way to the one that stands, so a line of
standing units is a wall. A unit's radius counts towards other units, not towards walls.
"""

import numpy as np

from fullrank.common.types import Array, BoolArray
from fullrank.environments.smac_lite.battle import Aim, Battle, Survey
from fullrank.environments.smac_lite.features import AWAY
from fullrank.environments.smac_lite.maps import SIDE, Ground

GRAIN = 2.0**-30
"""Pushes are multiples of this, so that their sums are exact in any order."""
EDGE = 2.0**-20
"""Distance that units keep from the end of the last walkable cell."""
INSIDE = 2.0**-6
"""Distance by which units walk further than their reach."""
CLEARANCE = 0.5
"""Distance from the sides of a gate at which units aim to pass it."""


class Terrain:
    """Walls of a map.

    Args:
        ground: Walkable cells.
    """

    def __init__(self, ground: Ground) -> None:
        self._low = np.array(ground.low, dtype=np.float64).reshape(2, 1, 1)
        self._high = np.array(ground.high).reshape(2, 1, 1) - EDGE
        self._walls = ~ground.walkable().ravel()
        self._wall, self._gate = ground.wall, ground.gate

    def walk(self, position: Array, shift: Array) -> Array:
        """Return displaced positions, shape (2, U, E); walls stop units along each axis alone."""
        x, y = position
        moved = np.minimum(np.maximum(position + shift, self._low), self._high)
        if self._wall is not None:
            np.copyto(moved[0], x, where=self._blocked(moved[0], y))
            np.copyto(moved[1], y, where=self._blocked(*moved))
        return moved

    def _blocked(self, x: Array, y: Array) -> BoolArray:
        """Return whether positions lie on cells that are not walkable."""
        cell = x.astype(np.int64)
        cell *= SIDE
        cell += y.astype(np.int64)
        blocked: BoolArray = self._walls.take(cell)
        return blocked

    def route(self, position: Array, relative: Array) -> Array:
        """Return the way, shape (2, U, E), to targets; to a gate for those behind the wall."""
        if self._wall is None:
            return relative
        (x, y), (first, beyond) = position, self._wall
        there = x + relative[0]
        west, east = x < first, x >= beyond
        behind = (west & (there >= first)) | (east & (there < beyond))
        low, high = self._gate[0] + CLEARANCE, self._gate[1] - CLEARANCE
        gate = np.stack([(first + beyond) / 2 - x, np.clip(y, low, high) - y])
        return np.where(behind, gate, relative)


def move(battle: Battle, survey: Survey, aim: Aim, terrain: Terrain, loops: int) -> None:
    """Move all units: those with a target until it is in reach, the others as ordered."""
    position = battle.position[:, : len(battle.forces.types)]
    way = terrain.route(position, aim.relative)
    length = aim.distance if way is aim.relative else np.sqrt(way[0] * way[0] + way[1] * way[1])
    chasing = (aim.distance > aim.reach) & (aim.distance < AWAY / 2)
    missing = aim.distance - aim.reach + _flight(battle, aim) + INSIDE
    pace = np.minimum(missing, battle.forces.speed * loops) * chasing
    pace /= np.maximum(length, GRAIN)
    shift = way * pace + battle.march * loops
    _push(battle, survey, chasing | battle.marching, shift)
    moved = terrain.walk(position, shift)
    np.subtract(moved, position, out=battle.drift[:, :-1])
    position[...] = moved


def _flight(battle: Battle, aim: Aim) -> Array:
    """Return how far targets moved away in the last tick, shape (U, E)."""
    x, y = battle.drift
    away = x.take(aim.place) * aim.relative[0] + y.take(aim.place) * aim.relative[1]
    flight: Array = np.maximum(away, 0.0) / np.maximum(aim.distance, GRAIN)
    return flight


def _push(battle: Battle, survey: Survey, moving: BoolArray, shift: Array) -> None:
    """Part overlapping units, whose displacements have shape (2, U, E).

    The two move apart by their overlap and by what they would approach each other.
    """
    touching = (survey.squared < battle.forces.contact).ravel().nonzero()[0]
    if not touching.size:
        return
    one, other = battle.one.take(touching), battle.other.take(touching)
    standing, walking = battle.forces.share
    share = np.where(moving, walking, standing).ravel()
    mine, theirs = share.take(one), share.take(other)
    distance = np.maximum(np.sqrt(survey.squared.take(touching)), GRAIN)
    (x, y), (dx, dy) = shift.reshape(2, -1), survey.delta.reshape(2, -1)
    apart = dx.take(touching), dy.take(touching)
    closing = (x.take(one) - x.take(other)) * apart[0]
    closing += (y.take(one) - y.take(other)) * apart[1]
    depth = battle.contact.take(touching) - distance - np.minimum(closing / distance, 0.0)
    depth /= distance * (mine + theirs) * GRAIN
    mine *= depth
    theirs *= depth
    for there, along in ((x, apart[0]), (y, apart[1])):
        pushed = np.bincount(one, np.rint(along * mine), minlength=share.size)
        pushed -= np.bincount(other, np.rint(along * theirs), minlength=share.size)
        there += pushed * GRAIN
