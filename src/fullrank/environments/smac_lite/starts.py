"""Starting positions."""

import math
from collections.abc import Sequence

import numpy as np

from fullrank.common.seeding import stream
from fullrank.common.types import Array
from fullrank.environments.smac_lite.maps import Army, Map

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
