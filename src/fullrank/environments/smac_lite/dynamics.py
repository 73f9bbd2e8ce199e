"""One environment step of all battles: eight game loops in ticks of two.

All attacks of a tick strike at once.

The built-in enemy attacks the nearest opponent, wherever it is. A unit keeps its target while that
is alive and in reach; otherwise it takes the nearest living opponent that it can attack. A medivac
heals the nearest injured unit of its side, or follows the nearest one. Agents can be played by the
same script, for tests of the model.

Every unit walks in a straight line, towards its target or as ordered. Units on the same level that
overlap are pushed apart along the line of their centres; the unit that moves gives way to the one
that stands, so a line of standing units is a wall. A unit's radius counts towards other units, not
towards walls.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fullrank.common.types import Array, BoolArray, IntArray
from fullrank.environments.smac_lite.battle import Aim, Battle, Survey
from fullrank.environments.smac_lite.features import AWAY
from fullrank.environments.smac_lite.maps import SIDE, Ground
from fullrank.environments.smac_lite.units import (
    ENERGY_RATE,
    HEAL_COST,
    HEAL_RATE,
    LEAST_DAMAGE,
    SHIELD_DELAY,
    SHIELD_RATE,
    STEP_LOOPS,
)

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


class Hits(NamedTuple):
    """Hits of one tick, k of them."""

    unit: IntArray
    """Attackers, shape (k,)."""
    victim: IntArray
    """Attacked unit of each attacker, shape (k,)."""
    copy: IntArray
    """Copy of the battle to which each attacker belongs, shape (k,)."""


def fight(battle: Battle, survey: Survey, aim: Aim, loops: int) -> None:
    """Let all units attack or heal that have their target in reach and a weapon that is ready."""
    forces = battle.forces
    ready = aim.within & (battle.cooldown <= loops / 2)
    if forces.healers.size:
        _heal(battle, aim, loops)
        ready[forces.healers] = False
    shots = ready.ravel().nonzero()[0]
    if shots.size:
        unit = shots // battle.copies
        copy = shots - unit * battle.copies
        battle.cooldown.ravel()[shots] += forces.period[unit]
        hits = Hits(unit, battle.target.ravel()[shots], copy)
        if forces.sweeping:
            hits = _with_splash(battle, survey, hits)
        if forces.volleys:
            again = np.repeat(np.arange(len(hits.unit)), forces.hits[hits.unit])
            hits = Hits(hits.unit[again], hits.victim[again], hits.copy[again])
        _strike(battle, hits)
    battle.cooldown -= loops
    np.copyto(battle.cooldown, 0.0, where=battle.cooldown < -loops / 2)  # idle: no credit


def recover(battle: Battle, loops: int) -> None:
    """Regenerate shields, health and energy of the living."""
    forces = battle.forces
    alive = battle.health > 0
    if forces.shielded:
        battle.calm += loops
        rested = (battle.calm >= SHIELD_DELAY) & alive
        battle.shield += rested * (SHIELD_RATE * loops)
        np.minimum(battle.shield, forces.shield, out=battle.shield)
    if forces.regenerating:
        battle.health += alive * (forces.regeneration * loops)
        np.minimum(battle.health, forces.health, out=battle.health)
    if forces.healers.size:
        battle.energy += ENERGY_RATE * loops
        np.minimum(battle.energy, forces.energy, out=battle.energy)


def _strike(battle: Battle, hits: Hits) -> None:
    """Take the damage from shields, then, less the armour, from health, hit by hit."""
    forces = battle.forces
    raw, armour = forces.damage[hits.unit, hits.victim], forces.armour[hits.victim]
    struck = hits.victim * battle.copies + hits.copy
    size = battle.health.size
    if forces.shielded:
        order = np.argsort(struck, kind="stable")
        struck, raw, armour = struck[order], raw[order], armour[order]
        pierced = np.clip(_dealt(struck, raw) - battle.shield.ravel()[struck], 0.0, raw)
        absorbed = np.bincount(struck, raw - pierced, minlength=size)
        battle.shield -= absorbed.reshape(battle.shield.shape)
        battle.calm.ravel()[struck] = 0.0
    else:
        pierced = raw
    loss = np.where(pierced > 0, np.maximum(pierced - armour, LEAST_DAMAGE), 0.0)
    battle.health -= np.bincount(struck, loss, minlength=size).reshape(battle.health.shape)
    battle.bury(struck)


def _dealt(struck: IntArray, raw: Array) -> Array:
    """Return the damage dealt to the same unit up to and with each hit, which units sort."""
    total = np.cumsum(raw)
    first = np.empty(len(struck), dtype=bool)
    first[0] = True
    np.not_equal(struck[1:], struck[:-1], out=first[1:])
    earlier = np.maximum.accumulate(np.where(first, total - raw, 0.0))
    dealt: Array = total - earlier
    return dealt


def _with_splash(battle: Battle, survey: Survey, hits: Hits) -> Hits:
    """Add hits on other opponents that the area around a target, across the attack, touches."""
    forces = battle.forces
    wide = forces.splash[0, hits.unit] > 0
    if not wide.any():
        return hits
    unit, victim, copy = (part[wide] for part in hits)
    units = len(forces.types)
    x, y = survey.x[:, copy], survey.y[:, copy]
    event = np.arange(len(unit))
    along = np.stack([x[victim, event] - x[unit, event], y[victim, event] - y[unit, event]])
    along /= np.maximum(np.sqrt(np.square(along[0]) + np.square(along[1])), 1e-9)
    rest = x[:units] - x[victim, event], y[:units] - y[victim, event]
    depth = np.abs(rest[0] * along[0] + rest[1] * along[1])
    offset = np.abs(rest[1] * along[0] - rest[0] * along[1])
    half, radius = forces.splash[:, unit] / 2, forces.radius[:, None]
    touched = (offset <= half[0] + radius) & (depth <= half[1] + radius)
    number = np.arange(units)[:, None]
    touched &= (number != victim) & (forces.barred[unit].T == 0)
    touched &= (number < forces.agents) != (unit < forces.agents)
    others, event = np.nonzero(touched)
    more = unit[event], others, copy[event]
    return Hits(*(np.concatenate(pair) for pair in zip(hits, more, strict=True)))


def _heal(battle: Battle, aim: Aim, loops: int) -> None:
    """Restore health of targets in reach, for energy."""
    healers, copies = battle.forces.healers, battle.copies
    points = HEAL_RATE * loops
    target = battle.target[healers]
    patient = np.minimum(target, len(battle.forces.types) - 1) * copies + np.arange(copies)
    hurt = battle.health.ravel()[patient] < battle.forces.health.ravel()[patient // copies]
    able = aim.within[healers] & hurt & (battle.energy[healers] >= points * HEAL_COST)
    battle.energy[healers] -= able * (points * HEAL_COST)
    healed = np.bincount(patient[able], minlength=battle.health.size) * points
    battle.health += healed.reshape(battle.health.shape)
    np.minimum(battle.health, battle.forces.health, out=battle.health)


Side = Literal["agents", "enemies"]


def retarget(battle: Battle, survey: Survey, side: Side) -> None:
    """Give the units of one side their targets."""
    forces = battle.forces
    n, m = forces.agents, forces.enemies
    across = survey.squared[: n * m].reshape(n, m, -1)
    if side == "agents":
        units, first = slice(n), n
        across = across.swapaxes(0, 1)
    else:
        units, first = slice(n, None), 0
    barred = forces.barred[units, first : first + len(across)].T
    if barred.any():
        across = across + barred[:, :, None]
    nearest = across.argmin(axis=0) + first
    kept = battle.engaged[units]
    battle.target[units] = np.where(kept, battle.target[units], nearest)
    for healer in forces.healers.tolist():
        if (healer < n) == (side == "agents"):
            battle.target[healer] = _patient(battle, survey, healer, units)


def _patient(battle: Battle, survey: Survey, healer: int, units: slice) -> IntArray:
    """Return the unit that a medivac heals or follows, shape (E,)."""
    x, y = survey.x[:-1], survey.y[:-1]
    distance = np.sqrt(np.square(x[units] - x[healer]) + np.square(y[units] - y[healer]))
    healthy = battle.health[units] >= battle.forces.health[units]
    healers = np.array([[unit.heals] for unit in battle.forces.types[units]])
    cost = distance + np.where(healers, np.inf, np.where(healthy, 100.0, 0.0))
    patient: IntArray = cost.argmin(axis=0) + (units.start or 0)
    return patient


TICK_LOOPS = 2
"""Loops of a tick. ADR 36 compares it with 1."""


def advance(
    battle: Battle,
    terrain: Terrain,
    scripted: Sequence[Side] = ("enemies",),
    *,
    tick_loops: int = TICK_LOOPS,
) -> None:
    """Advance all battles by one step.

    Args:
        battle: State, which is changed.
        terrain: Walls.
        scripted: Sides that the script plays; the others follow their orders.
        tick_loops: Loops of a tick, a divisor of 8.
    """
    for _ in range(STEP_LOOPS // tick_loops):
        survey = battle.survey()
        for side in scripted:
            retarget(battle, survey, side)
        aim = battle.aim(survey)
        fight(battle, survey, aim, tick_loops)
        move(battle, survey, aim, terrain, tick_loops)
        battle.engaged = aim.within
    recover(battle, STEP_LOOPS)
