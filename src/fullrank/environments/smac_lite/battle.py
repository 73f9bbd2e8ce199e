"""State of E battles, and their reward and end as SMAC counts them [Samvelyan19].

All arrays have the copies last, so that operations run along contiguous memory. No operation mixes
copies, and sums over units are exact or in a fixed order: a copy's trajectory depends neither on
the other copies nor on the side that a unit is on.
"""

from typing import NamedTuple

import numpy as np

from fullrank.common.types import Array, BoolArray, IntArray
from fullrank.environments.smac_lite.features import AWAY
from fullrank.environments.smac_lite.forces import Forces


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
