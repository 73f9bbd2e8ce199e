"""Observations, state and available actions, equal to those of SMAC's Python layer [Samvelyan19].

All are functions of positions, health, shields, cooldowns and energy. SMAC computes in double
precision and stores float32; so does this module. Actions are: 0 no-op, for the dead alone; 1
stop; 2 to 5 move north (+y), south, east (+x), west; 6 + j attack enemy j. A medivac's 6 + j heals
agent j instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import Array, BoolArray, FloatArray
from fullrank.environments.smac_lite.units import UnitType

SIGHT = 9.0
"""Distance below which agents observe other units."""
SHOOT = 6.0
"""Distance up to which agents may attack, whatever their weapon."""
STOP, MOVES, TARGETS = 1, slice(2, 6), 6
"""Indices of actions."""
DIRECTIONS = np.array([[0.0, 0.0, 1.0, -1.0], [1.0, -1.0, 0.0, 0.0]])
"""Directions of the moves, shape (2, 4)."""
AWAY = 1e3
"""Distance of dead units from all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideConstants:
    """Constants of the k units of one side."""

    health: Array
    """Largest health, shape (k, 1)."""
    shield: Array | None
    """Largest shield, shape (k, 1); None for an army without shields."""
    bits: Array
    """One-hot type of each unit, shape (k, bits, 1)."""

    @classmethod
    def of(cls, units: Sequence[UnitType], kinds: Sequence[str]) -> "SideConstants":
        """Side of these units, whose types ``kinds`` lists in the order of the type bits."""
        shield = np.array([[unit.shield] for unit in units], dtype=np.float64)
        bits = np.array([[kind == unit.name for kind in kinds] for unit in units], dtype=np.float64)
        return cls(
            health=np.array([[unit.health] for unit in units], dtype=np.float64),
            shield=shield if shield.any() else None,
            bits=bits.reshape(len(units), len(kinds), 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The k units of one side in E copies."""

    position: Array
    """Shape (2, k, E)."""
    health: Array
    """Shape (k, E); 0 for the dead."""
    shield: Array
    """Shape (k, E)."""

    @property
    def alive(self) -> BoolArray:
        """Mask of the living, shape (k, E)."""
        return self.health > 0


class Features:
    """Features of n agents and m enemies on a map.

    Args:
        allies: Constants of the agents.
        enemies: Constants of the enemies.
        cooldown_scale: Divisor of each agent's cooldown, or energy, in the state, shape (n, 1).
        healers: Mask of the agents that heal, shape (n,).
        walkable: Mask of the cells of the map, shape (x, y).
        area: Size of the play area, the divisor of positions in the state.

    Attributes:
        observation_size: Entries of an agent's observation.
        state_size: Entries of the state.
        actions: Actions of an agent.
    """

    def __init__(
        self,
        allies: SideConstants,
        enemies: SideConstants,
        *,
        cooldown_scale: Array,
        healers: BoolArray,
        walkable: BoolArray,
        area: tuple[float, float],
    ) -> None:
        self._allies, self._enemies, self._cooldown_scale = allies, enemies, cooldown_scale
        self._healers = np.flatnonzero(healers)
        self._centre = np.array(walkable.shape).reshape(2, 1, 1) / 2
        self._area = np.array(area, dtype=np.float64).reshape(2, 1, 1)
        self._cells = np.pad(walkable, 1).ravel()  # a border, where no unit can walk
        self._columns = walkable.shape[1] + 2
        n, m = len(allies.health), len(enemies.health)
        self._agents, self._opponents = n, m
        self._remote: Array = AWAY * np.arange(1.0, n + 1)[:, None]
        self._remote_enemies: Array = -AWAY * np.arange(1.0, m + 1)[:, None]
        self._others = np.array([[j for j in range(n) if j != i] for i in range(n)])
        self._own, self._other = _width(allies), _width(enemies)
        self.actions = TARGETS + m
        self.observation_size = 4 + m * (4 + self._other) + (n - 1) * (4 + self._own) + self._own
        self.state_size = n * (3 + self._own) + m * (2 + self._other) + n * self.actions

    def look(self, allies: Standing, enemies: Standing) -> tuple[FloatArray, BoolArray]:
        """Return observations and available actions of all agents.

        Returns:
            Shapes (E, n observation_size) and (E, n actions).
        """
        alive = allies.alive
        ours = _present(allies.position, alive, self._remote)
        theirs = _present(enemies.position, enemies.alive, self._remote_enemies)
        sight = _sight(theirs[:, None], ours[:, :, None])
        available = self._available(alive, ours, sight[0])
        n, m = self._agents, self._opponents
        seen = np.empty((n, self.observation_size, alive.shape[-1]), dtype=np.float32)
        seen[:, :4] = available[:, MOVES]
        stop = 4 + m * (4 + self._other)
        block = seen[:, 4:stop].reshape(n, m, 4 + self._other, -1)
        visible = _write_seen(block, sight)
        np.logical_and(available[:, TARGETS:], visible, out=block[:, :, 0], casting="unsafe")
        _write_units(block[:, :, 4:], visible, _condition(self._enemies, enemies))
        own = _condition(self._allies, allies)
        if n > 1:
            self._write_allies(seen[:, stop : seen.shape[1] - self._own], ours, own)
        np.multiply(own, alive[:, None], out=seen[:, -self._own :], casting="same_kind")
        return _rows(seen), _rows(available)

    def state(
        self, allies: Standing, enemies: Standing, *, cooldown: Array, last: BoolArray
    ) -> FloatArray:
        """Return the state, shape (E, state_size).

        Args:
            allies: Agents.
            enemies: Enemies.
            cooldown: Loops until each agent's next attack, for a medivac its energy, (n, E).
            last: One-hot last actions, zeros before the first step, shape (n, actions, E).
        """
        n, m = self._agents, self._opponents
        state = np.empty((self.state_size, last.shape[-1]), dtype=np.float32)
        first, second = n * (3 + self._own), m * (2 + self._other)
        ours = state[:first].reshape(n, 3 + self._own, -1)
        theirs = state[first : first + second].reshape(m, 2 + self._other, -1)
        ours[:, 1] = cooldown / self._cooldown_scale
        for block, at, side, units in (
            (ours, 2, self._allies, allies),
            (theirs, 1, self._enemies, enemies),
        ):
            condition = _condition(side, units)
            block[:, 0] = condition[:, 0]
            block[:, at : at + 2] = ((units.position - self._centre) / self._area).swapaxes(0, 1)
            block[:, at + 2 :] = condition[:, 1:]
            block *= units.alive[:, None]
        state[first + second :] = last.reshape(n * self.actions, -1)
        return np.ascontiguousarray(state.T)

    def _available(self, alive: BoolArray, ours: Array, distance: Array) -> BoolArray:
        """Return the mask of available actions, shape (n, actions, E)."""
        available = np.empty((self._agents, self.actions, alive.shape[-1]), dtype=bool)
        np.logical_not(alive, out=available[:, 0])
        available[:, STOP] = alive
        np.logical_and(self._steps(ours), alive[:, None], out=available[:, MOVES])
        np.less_equal(distance, SHOOT, out=available[:, TARGETS:])
        for healer in self._healers.tolist():
            reached = _sight(ours, ours[:, healer, None])[0] <= SHOOT
            reached[self._healers] = False
            available[healer, TARGETS:] = False
            available[healer, TARGETS : TARGETS + self._agents] = reached & alive[healer]
        return available

    def _steps(self, ours: Array) -> BoolArray:
        """Return whether the cells one unit north, south, east and west are walkable, (n, 4, E)."""
        column, row = (ours[:, :, None] + DIRECTIONS[:, None, :, None]).astype(np.int64)
        cell = column * self._columns + row + (self._columns + 1)
        walkable: BoolArray = self._cells.take(cell, mode="clip")
        return walkable

    def _write_allies(self, out: FloatArray, ours: Array, condition: Array) -> None:
        """Write the features of the other agents into ``out``, shape (n, (n - 1) width, E)."""
        n = self._agents
        block = out.reshape(n, n - 1, 4 + self._own, -1)
        visible = _write_seen(block, _sight(ours.take(self._others, axis=1), ours[:, :, None]))
        block[:, :, 0] = visible
        _write_units(block[:, :, 4:], visible, condition.take(self._others, axis=0))


def _width(side: SideConstants) -> int:
    """Return the number of features of a unit's health, shield and type."""
    return 1 + (side.shield is not None) + int(side.bits.shape[1])


def _present(position: Array, alive: BoolArray, remote: Array) -> Array:
    """Return positions, shape (2, k, E), where x of the dead is ``remote``, shape (k, 1)."""
    present = position.copy()
    np.copyto(present[0], remote, where=~alive)
    return present


def _sight(there: Array, here: Array) -> Array:
    """Return distances and relative positions, shape (3, ...), of two sets of positions."""
    relative = there - here
    sight: Array = np.empty((3, *relative.shape[1:]))
    sight[1:] = relative
    np.square(relative, out=relative)
    np.sqrt(np.add(relative[0], relative[1], out=relative[0]), out=sight[0])
    return sight


def _condition(side: SideConstants, units: Standing) -> Array:
    """Return relative health, relative shield if the army has any, and type bits, (k, width, E)."""
    condition = np.empty((len(side.health), _width(side), units.health.shape[-1]))
    np.divide(units.health, side.health, out=condition[:, 0])
    if side.shield is not None:
        np.divide(units.shield, side.shield, out=condition[:, 1])
    condition[:, condition.shape[1] - side.bits.shape[1] :] = side.bits
    return condition


def _write_seen(block: FloatArray, sight: Array) -> BoolArray:
    """Write distances and directions into a block, shape (n, k, width, E); return the visible."""
    visible: BoolArray = sight[0] < SIGHT
    sight /= SIGHT
    np.multiply(sight, visible, out=block[:, :, 1:4].transpose(2, 0, 1, 3), casting="same_kind")
    return visible


def _write_units(out: FloatArray, visible: BoolArray, condition: Array) -> None:
    """Write the condition of visible units into ``out``, shape (n, k, width, E)."""
    np.multiply(condition, visible[:, :, None], out=out, casting="same_kind")


def _rows(values: NDArray[np.float32] | BoolArray) -> NDArray[Any]:
    """Return features of agents, shape (n, width, E), as rows of copies, shape (E, n width)."""
    return np.ascontiguousarray(values.reshape(-1, values.shape[-1]).T)
