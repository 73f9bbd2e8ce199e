"""Constants of both armies of a map: n agents, then m enemies, U = n + m units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import Array, IntArray
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
