"""State of E battles, and their reward and end as SMAC counts them [Samvelyan19].

All arrays have the copies last, so that operations run along contiguous memory. No operation mixes
copies, and sums over units are exact or in a fixed order: a copy's trajectory depends neither on
the other copies nor on the side that a unit is on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fullrank.common.types import Array, BoolArray, IntArray
from fullrank.environments.smac_lite.features import AWAY
from fullrank.environments.smac_lite.units import UnitType

MOVING, STANDING = 1.0, 1 / 16
"""Shares with which two units in contact give way; a building has 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forces:
    """Constants per unit, as columns (U, 1) where they meet all copies, and per pair.

    As a target, U stands for no unit.
    """

    types: tuple[UnitType, ...]
    agents: int
    """n, number of units that agents command."""
    initial: Array
    """Health, shield, energy, and zeros for cooldown and calm, shape (5, U, 1)."""
    health: Array
    """Largest health, shape (U, 1)."""
    shield: Array
    """Largest shield, shape (U, 1)."""
    energy: Array
    """Largest energy, shape (U, 1)."""
    speed: Array
    """Map units per loop, shape (U, 1)."""
    share: Array
    """Shares with which standing and moving units give way to contact, shape (2, U, 1)."""
    regeneration: Array
    """Health regenerated per loop, shape (U, 1)."""
    armour: Array
    """Armour of each unit, shape (U,)."""
    period: Array
    """Loops between attacks, shape (U,)."""
    hits: IntArray
    """Hits of an attack, shape (U,)."""
    splash: Array
    """Area of an attack across and along its direction, shape (2, U)."""
    radius: Array
    """Radius of each unit, shape (U,)."""
    damage: Array
    """Damage of a hit of the first on the second unit before armour, shape (U, U)."""
    reach: Array
    """Distance of centres up to which the first acts on the second, shape (U, U + 1)."""
    barred: Array
    """Infinite where the first cannot attack the second, else 0, shape (U, U)."""
    shielded: bool
    """True if any unit has shields."""
    volleys: bool
    """True if any attack has several hits."""
    sweeping: bool
    """True if any attack has an area."""
    regenerating: bool
    """True if any unit regenerates health."""
    healers: IntArray
    """Units that heal, shape (h,)."""
    one: IntArray
    """First units of all P pairs, shape (P,): pairs of an agent and an enemy come first."""
    other: IntArray
    """Second units, shape (P,)."""
    contact: Array
    """Squared distance below which two units overlap, 0 for a flying and a walking one, (P, 1)."""

    @property
    def enemies(self) -> int:
        """Number of enemies, m."""
        return len(self.types) - self.agents

    @classmethod
    def of(cls, allies: Sequence[UnitType], enemies: Sequence[UnitType]) -> "Forces":
        """Forces of these two armies."""
        types, n = (*allies, *enemies), len(allies)
        radius = np.array([unit.radius for unit in types])
        one, other = _pairs(n, len(types))
        flies = np.array([unit.flies for unit in types])
        touching = (radius[one] + radius[other]) * (flies[one] == flies[other])
        building = np.array([[unit.speed == 0] for unit in types])
        return cls(
            types=types,
            agents=n,
            initial=np.array(
                [[[u.health], [u.shield], [u.energy[0]], [0.0], [0.0]] for u in types]
            ).swapaxes(0, 1),
            health=_column([unit.health for unit in types]),
            shield=_column([unit.shield for unit in types]),
            energy=_column([unit.energy[1] for unit in types]),
            speed=_column([unit.speed for unit in types]),
            share=np.array([STANDING, MOVING]).reshape(2, 1, 1) * ~building,
            regeneration=_column([unit.regeneration for unit in types]),
            armour=np.array([unit.armour for unit in types]),
            period=np.array([unit.period for unit in types]),
            hits=np.array([unit.hits for unit in types]),
            splash=np.array([unit.splash for unit in types]).T,
            radius=radius,
            damage=np.array([[unit.damage_to(target) for target in types] for unit in types]),
            reach=_reach(types, radius),
            barred=np.array([[_bar(unit, target) for target in types] for unit in types]),
            shielded=any(unit.shield for unit in types),
            volleys=any(unit.hits > 1 for unit in types),
            sweeping=any(unit.splash[0] for unit in types),
            regenerating=any(unit.regeneration for unit in types),
            healers=np.flatnonzero([unit.heals for unit in types]),
            one=one,
            other=other,
            contact=np.square(touching)[:, None],
        )


def _column(values: Sequence[float]) -> Array:
    return np.array(values, dtype=np.float64)[:, None]


def _pairs(agents: int, units: int) -> tuple[IntArray, IntArray]:
    """Return all pairs of two units, those of opponents first."""
    one, other = np.triu_indices(units, 1)
    opposed = (one < agents) & (other >= agents)
    order = np.argsort(~opposed, kind="stable")
    return one[order], other[order]


def _reach(types: Sequence[UnitType], radius: Array) -> Array:
    """Return the reach of each unit to each other, and -1 to no unit."""
    reach = np.array([[unit.reach] for unit in types]) + radius[:, None] + radius
    return np.pad(reach, ((0, 0), (0, 1)), constant_values=-1.0)


def _bar(unit: UnitType, target: UnitType) -> float:
    hurts = unit.damage > 0 and (unit.hits_air or not target.flies)
    return 0.0 if hurts else np.inf


class Battle:
    """Units of both sides in E copies, and their orders.

    Attributes:
        position: Of all units, and of a place far away for the target U, shape (2, U + 1, E).
        away: Added to x in comparisons: 0 for the living; it separates the dead from all others,
            shape (U + 1, E).
        health: 0 for the dead, shape (U, E).
        shield: Shape (U, E).
        energy: Shape (U, E).
        cooldown: Loops until the next attack, shape (U, E).
        calm: Loops since the last hit, shape (U, E).
        march: Ordered displacement per loop, shape (2, U, E).
        marching: Mask of the units that are ordered to move, shape (U, E).
        drift: Displacement in the last tick, shape (2, U + 1, E).
        target: Unit to attack or heal, U for none, shape (U, E).
        engaged: Mask of the units whose target was in reach in the last tick, shape (U, E).
        one: Indices of the first units of all pairs into arrays of shape (U, E), shape (P E,).
        other: The same for the second units.
        contact: Distance below which the units of a pair overlap, shape (P E,).
    """

    def __init__(self, forces: Forces, copies: int) -> None:
        units = len(forces.types)
        shape = (units, copies)
        self.forces, self.copies = forces, copies
        self.position = np.zeros((2, units + 1, copies))
        self.drift = np.zeros((2, units + 1, copies))
        self.away = np.zeros((units + 1, copies))
        self._amounts = np.zeros((5, *shape))
        self.health, self.shield, self.energy, self.cooldown, self.calm = self._amounts
        self.march, self.marching = np.zeros((2, *shape)), np.zeros(shape, dtype=bool)
        self.target = np.full(shape, units)
        self.engaged = np.zeros(shape, dtype=bool)
        self._column = np.arange(copies)
        self.one = (forces.one[:, None] * copies + self._column).ravel()
        self.other = (forces.other[:, None] * copies + self._column).ravel()
        self.contact = np.sqrt(np.repeat(forces.contact, copies))
        self._row = np.arange(units)[:, None] * (units + 1)
        self._remote = AWAY * np.arange(1, units + 2)[:, None]
        self.away[units] = self._remote[units]

    def begin(self, copies: IntArray, position: Array) -> None:
        """Start battles with fresh units at these positions, shape (2, U, len(copies))."""
        units = len(self.forces.types)
        self.position[:, :units, copies] = position
        self.drift[:, :, copies] = 0.0
        self.away[:units, copies] = 0.0
        self._amounts[:, :, copies] = self.forces.initial
        self.engaged[:, copies] = False
        self.march[:, :, copies] = 0.0
        self.marching[:, copies] = False
        self.target[:, copies] = units

    def survey(self) -> "Survey":
        """Return the distances of all pairs."""
        x, y = self.position
        x = x + self.away
        one, other = self.forces.one, self.forces.other
        delta = np.empty((2, len(one), self.copies))
        np.subtract(x.take(one, axis=0), x.take(other, axis=0), out=delta[0])
        np.subtract(y.take(one, axis=0), y.take(other, axis=0), out=delta[1])
        return Survey(x, y, delta, np.square(delta[0]) + np.square(delta[1]))

    def aim(self, survey: "Survey") -> "Aim":
        """Return where the targets are."""
        units = len(self.forces.types)
        place = self.target * self.copies + self._column
        relative = np.empty((2, units, self.copies))
        np.subtract(survey.x.take(place), survey.x[:units], out=relative[0])
        np.subtract(survey.y.take(place), survey.y[:units], out=relative[1])
        distance = np.sqrt(np.square(relative[0]) + np.square(relative[1]))
        reach = self.forces.reach.take(self._row + self.target)
        return Aim(place, relative, distance, reach, distance <= reach)

    def bury(self, struck: IntArray) -> None:
        """Remove the dead among these units, given as indices into (U, E)."""
        died = struck[self.health.ravel()[struck] <= 0]
        if died.size:
            unit, copy = np.divmod(died, self.copies)
            self.health[unit, copy] = self.shield[unit, copy] = 0.0
            self.away[unit, copy] = self._remote[unit, 0]


class Survey(NamedTuple):
    """Distances of all pairs of units; the dead are far from all others."""

    x: Array
    """Shape (U + 1, E)."""
    y: Array
    """Shape (U + 1, E)."""
    delta: Array
    """Position of the first unit of a pair minus that of the second, shape (2, P, E)."""
    squared: Array
    """Squared distances, shape (P, E)."""


class Aim(NamedTuple):
    """Targets as seen from their attackers."""

    place: IntArray
    """Indices of the targets into arrays of shape (U + 1, E), shape (U, E)."""
    relative: Array
    """Shape (2, U, E)."""
    distance: Array
    """Shape (U, E)."""
    reach: Array
    """Distance up to which the unit acts on its target, shape (U, E)."""
    within: BoolArray
    """True where the target is in reach and both units live, shape (U, E)."""


KILL, VICTORY, LARGEST_RETURN = 10.0, 200.0, 20.0
"""Rewards of a kill and of the victory before scaling, and the largest return after it."""


def damage_reward(before: Array, after: Array) -> Array:
    """Return the reward of the damage and the kills of one step before scaling, shape (E,).

    A kill counts all that was left of the enemy. As in SMAC, the sign is dropped, so that shields
    which regenerate without a fight are rewarded.

    Args:
        before: Health and shield of each enemy before the step, 0 for the dead, shape (m, E).
        after: The same after the step.
    """
    kills = ((before > 0) & (after <= 0)).sum(axis=0)
    reward: Array = np.abs((before - after).sum(axis=0) + KILL * kills)
    return reward


def judge(
    agents: BoolArray, enemies: BoolArray, *, medics: BoolArray, enemy_medics: BoolArray
) -> tuple[BoolArray, BoolArray]:
    """Return which battles are won and which are over, both of shape (E,).

    Agents without a fighter have lost; enemies are beaten if none is left, or a single medivac.

    Args:
        agents: Mask of the living agents, shape (n, E).
        enemies: Mask of the living enemies, shape (m, E).
        medics: Mask of the agents that are medivacs, shape (n,).
        enemy_medics: Mask of the enemies that are medivacs, shape (m,).
    """
    standing = agents[~medics].any(axis=0)
    left = enemies.sum(axis=0)
    beaten = (left == 0) | ((left == 1) & enemies[enemy_medics].any(axis=0))
    return standing & beaten, ~standing | beaten
