"""The 13 maps: armies with their starting positions, episode limits and ground.

Armies and limits are those of SMAC [Samvelyan19]. The ground is a model: SMAC's maps are 32 x 32
cells; here all share an open field of 24 x 20 cells in their middle, except for the map whose task
is a choke point. The armies of most maps start 14 apart, as SMAC's do.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.common.data import toml
from fullrank.common.errors import ConfigError
from fullrank.common.registry import nearest
from fullrank.common.seeding import stream
from fullrank.common.types import Array, BoolArray
from fullrank.environments.smac_lite.units import UNITS, UnitType

SIDE = 32
"""Cells along each side of a map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Cells that units can walk on: a rectangle, possibly divided by a wall with one gate."""

    low: tuple[int, int] = (4, 6)
    """First walkable cell along each axis."""
    high: tuple[int, int] = (28, 26)
    """First cell beyond them."""
    wall: tuple[int, int] | None = None
    """First cell of the wall along x, and the first beyond it."""
    gate: tuple[int, int] = (0, 0)
    """First walkable cell of the wall along y, and the first beyond them."""

    def walkable(self) -> BoolArray:
        """Mask of the walkable cells, shape (x, y)."""
        cells = np.zeros((SIDE, SIDE), dtype=bool)
        cells[self.low[0] : self.high[0], self.low[1] : self.high[1]] = True
        if self.wall is not None:
            cells[self.wall[0] : self.wall[1], : self.gate[0]] = False
            cells[self.wall[0] : self.wall[1], self.gate[1] :] = False
        return cells

    @property
    def size(self) -> tuple[int, int]:
        """SMAC's play area, the divisor of positions in the state."""
        return self.high[0] - self.low[0], self.high[1] - self.low[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Army:
    """Units of one side and their starting point."""

    units: Mapping[str, int]
    """Types and numbers; SMAC lists agents by type in the order of its custom units."""
    start: tuple[float, float]
    """Middle of the formation."""
    spacing: float = 1.5
    """Distance between neighbours in the formation."""

    @property
    def types(self) -> tuple[UnitType, ...]:
        """Type of each unit."""
        return tuple(UNITS[name] for name, number in self.units.items() for _ in range(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Task: the units of both sides and the time limit of an episode."""

    name: str
    allies: Army
    enemies: Army
    limit: int
    """Steps of an episode."""
    kinds: tuple[str, ...] = ()
    """Types in the order of the bits that tell the agents' types apart; none: no such bits."""
    enemy_kinds: tuple[str, ...] = ()
    """The same for enemies, whose order differs in SMAC."""
    ground: Ground

    @property
    def largest_return(self) -> float:
        """Damage to all enemies, 10 for each and 200 for the victory, before scaling."""
        return sum(unit.health + unit.shield + 10 for unit in self.enemies.types) + 200


def _map(name: str, facts: dict[str, Any]) -> Map:
    armies = {side: Army(**facts[side]) for side in ("allies", "enemies")}
    return Map(name=name, **{**facts, **armies, "ground": Ground(**facts.get("ground", {}))})


MAPS = {name: _map(name, facts) for name, facts in toml(__package__, "maps.toml").items()}
"""Maps by name."""


def map_of(name: str) -> Map:
    """Return the map called ``name``.

    Raises:
        ConfigError: There is no such map.
    """
    if name not in MAPS:
        raise ConfigError(f"environment.map: unknown map {name!r}{nearest(name, list(MAPS))}")
    return MAPS[name]


JITTER = 0.4
"""Largest displacement of a unit from its place in the formation along an axis."""


class Starts:
    """Starting positions of both armies of a map, agents first.

    Units stand on square grids; each is displaced at random from its place. Those of one type are
    in ascending order of x, then y, as SMAC numbers its agents.

    Args:
        task: Map.
    """

    def __init__(self, task: Map) -> None:
        armies = _grid(task.allies, 1), _grid(task.enemies, -1)
        self._places = np.concatenate(armies, axis=1)
        types = (*task.allies.types, *task.enemies.types)
        kinds = [types.index(unit) for unit in types]
        opposed = np.arange(len(types)) >= len(task.allies.types)
        self._group = len(types) * opposed + kinds

    def draw(self, seeds: Sequence[int]) -> Array:
        """Return positions for each seed, shape (2, U, len(seeds))."""
        draws = [stream(seed, "smac_lite").random(self._places.shape) for seed in seeds]
        x, y = self._places[:, None] + JITTER * (2 * np.stack(draws, axis=1) - 1)
        order = np.lexsort((y, x, np.broadcast_to(self._group, x.shape)))
        copy = np.arange(len(x))[:, None]
        return np.stack([x[copy, order].T, y[copy, order].T])


def _grid(army: Army, facing: int) -> Array:
    """Return places of k units, shape (2, k); their opponents are in direction x ``facing``."""
    number = len(army.types)
    column, row = np.divmod(np.arange(number), math.ceil(math.sqrt(number)))
    grid = np.stack([facing * (column - column.max() / 2), row - row.max() / 2])
    places: Array = np.array(army.start)[:, None] + army.spacing * grid
    return places
