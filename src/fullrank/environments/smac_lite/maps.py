"""The 13 maps: armies with their starting positions, episode limits and ground.

Armies and limits are those of SMAC [Samvelyan19]. The ground is a model: SMAC's maps are 32 x 32
cells; here all share an open field of 24 x 20 cells in their middle, except for the map whose task
is a choke point. The armies of most maps start 14 apart, as SMAC's do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

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

    units: tuple[tuple[str, int], ...]
    """Types and numbers; SMAC lists agents by type in the order of its custom units."""
    start: tuple[float, float]
    """Middle of the formation."""
    spacing: float = 1.5
    """Distance between neighbours in the formation."""

    @property
    def types(self) -> tuple[UnitType, ...]:
        """Type of each unit."""
        return tuple(UNITS[name] for name, number in self.units for _ in range(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """One task."""

    name: str
    allies: Army
    enemies: Army
    limit: int
    """Steps of an episode."""
    kinds: tuple[str, ...] = ()
    """Types in the order of the bits that tell the agents' types apart; none: no such bits."""
    enemy_kinds: tuple[str, ...] = ()
    """The same for enemies, whose order differs in SMAC."""
    ground: Ground = field(default_factory=Ground)

    @property
    def largest_return(self) -> float:
        """Damage to all enemies, 10 for each and 200 for the victory, before scaling."""
        return sum(unit.health + unit.shield + 10 for unit in self.enemies.types) + 200


def _army(
    *units: tuple[str, int], start: tuple[float, float] = (9.0, 16.0), spacing: float = 1.5
) -> Army:
    return Army(units=units, start=start, spacing=spacing)


EAST = (23.0, 16.0)
CORRIDOR = Ground(low=(1, 4), high=(31, 28), wall=(11, 13), gate=(14, 18))
STALKER_ZEALOT, ZEALOT_STALKER = ("stalker", "zealot"), ("zealot", "stalker")
COLOSSUS = ("colossus", "stalker", "zealot")
MEDIC = ("marauder", "marine", "medivac")
MAPS = {
    task.name: task
    for task in (
        Map(
            name="3m",
            allies=_army(("marine", 3)),
            enemies=_army(("marine", 3), start=EAST),
            limit=60,
        ),
        Map(
            name="8m",
            allies=_army(("marine", 8)),
            enemies=_army(("marine", 8), start=EAST),
            limit=120,
        ),
        Map(
            name="2s3z",
            allies=_army(("stalker", 2), ("zealot", 3)),
            enemies=_army(("stalker", 2), ("zealot", 3), start=EAST),
            limit=120,
            kinds=STALKER_ZEALOT,
            enemy_kinds=ZEALOT_STALKER,
        ),
        Map(
            name="5m_vs_6m",
            allies=_army(("marine", 5)),
            enemies=_army(("marine", 6), start=EAST),
            limit=70,
        ),
        Map(
            name="10m_vs_11m",
            allies=_army(("marine", 10)),
            enemies=_army(("marine", 11), start=EAST),
            limit=150,
        ),
        Map(
            name="1c3s5z",
            allies=_army(("colossus", 1), ("stalker", 3), ("zealot", 5)),
            enemies=_army(("colossus", 1), ("stalker", 3), ("zealot", 5), start=EAST),
            limit=180,
            kinds=COLOSSUS,
            enemy_kinds=COLOSSUS,
        ),
        Map(
            name="2s_vs_1sc",
            allies=_army(("stalker", 2), start=(14.0, 10.0), spacing=6.0),
            enemies=_army(("spine_crawler", 1), start=(14.0, 20.0)),
            limit=300,
        ),
        Map(
            name="3s_vs_3z",
            allies=_army(("stalker", 3)),
            enemies=_army(("zealot", 3), start=EAST),
            limit=150,
        ),
        Map(
            name="3s_vs_5z",
            allies=_army(("stalker", 3)),
            enemies=_army(("zealot", 5), start=EAST),
            limit=250,
        ),
        Map(
            name="3s5z_vs_3s6z",
            allies=_army(("stalker", 3), ("zealot", 5)),
            enemies=_army(("stalker", 3), ("zealot", 6), start=EAST),
            limit=170,
            kinds=STALKER_ZEALOT,
            enemy_kinds=ZEALOT_STALKER,
        ),
        Map(
            name="6h_vs_8z",
            allies=_army(("hydralisk", 6)),
            enemies=_army(("zealot", 8), start=EAST),
            limit=150,
        ),
        Map(
            name="MMM2",
            allies=_army(("marauder", 2), ("marine", 7), ("medivac", 1)),
            enemies=_army(("marauder", 3), ("marine", 8), ("medivac", 1), start=EAST),
            limit=180,
            kinds=MEDIC,
            enemy_kinds=MEDIC,
        ),
        Map(
            name="corridor",
            allies=_army(("zealot", 6), start=(15.0, 16.0)),
            enemies=_army(("zergling", 24), start=(26.0, 16.0)),
            limit=400,
            ground=CORRIDOR,
        ),
    )
}
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
