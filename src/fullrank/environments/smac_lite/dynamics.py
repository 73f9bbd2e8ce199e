"""One environment step of all battles: eight game loops in ticks of two.

All attacks of a tick strike at once.

The built-in enemy attacks the nearest opponent, wherever it is. A unit keeps its target while that
is alive and in reach; otherwise it takes the nearest living opponent that it can attack. A medivac
heals the nearest injured unit of its side, or follows the nearest one. Agents can be played by the
same script, for tests of the model.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fullrank.common.types import Array, IntArray
from fullrank.environments.smac_lite.battle import Aim, Battle, Survey
from fullrank.environments.smac_lite.movement import Terrain, move
from fullrank.environments.smac_lite.units import (
    ENERGY_RATE,
    HEAL_COST,
    HEAL_RATE,
    LEAST_DAMAGE,
    SHIELD_DELAY,
    SHIELD_RATE,
    STEP_LOOPS,
)


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
