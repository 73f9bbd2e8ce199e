"""Rows of a single unit: each gives an update on arrival, without solving.

A float32 u on the grid with c u = y, entry by entry, is the only one: another would be off by at
least 2^-24 of itself, and the product in float64 by no more than 2^-53.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fullrank.common.types import EncodedVector, FloatArray, UnitIndex, Vector
from fullrank.common.updates import GRID, snap, unit_digest


class SingleUnitRows:
    """Extract and hash the updates of units that rows hold alone.

    Args:
        unit_sizes: P_i of each unit.
        grid: The grid the updates lie on.
        statistics: Number of last entries of each update that hold statistics.

    >>> rows = SingleUnitRows([2, 1])
    >>> rows.add(0, np.array([0.0, 2.0]), np.array([1.0, 0.0]))
    >>> rows.add(1, np.array([-1.0, 0.0]), np.array([0.5, -0.25]))
    >>> rows.precompute()
    >>> updates, digests = rows.updates([0, 1])
    >>> updates.tolist(), digests == tuple(map(unit_digest, (updates[0], updates[1, :1])))
    ([[-0.5, 0.25], [0.5, 0.0]], True)
    """

    def __init__(
        self, unit_sizes: Sequence[int], *, grid: float = GRID, statistics: int = 0
    ) -> None:
        self._sizes, self._grid, self._statistics = tuple(unit_sizes), grid, statistics
        self._updates: FloatArray = np.empty((0, 0), np.float32)
        self._digests: dict[UnitIndex, bytes] = {}
        self._units: dict[int, UnitIndex] = {}
        self._waiting: list[tuple[int, UnitIndex, float, EncodedVector]] = []
        self._all_single = True

    def add(self, row: int, coefficients: Vector, coded: EncodedVector) -> None:
        """Take a row, shapes (M,) and (P,).

        A row of several units has to be solved for; from then on nothing is extracted.
        """
        units = np.flatnonzero(coefficients)
        if len(units) > 1:
            self._all_single = False
            self._waiting.clear()
        elif len(units) and self._all_single:
            unit = int(units[0])
            self._waiting.append((row, unit, float(coefficients[unit]), coded))

    def precompute(self) -> None:
        """Extract the updates of the rows taken so far; reads each vector three times."""
        if self._waiting and not self._updates.size:
            self._updates = np.empty((len(self._sizes), max(self._sizes)), np.float32)
        while self._waiting:
            row, unit, coefficient, coded = self._waiting.pop()
            with np.errstate(over="ignore", invalid="ignore"):  # a corrupted vector may hold 1e300
                if self._explained(unit, coefficient, coded):
                    self._units[row] = unit

    def _explained(self, unit: UnitIndex, coefficient: float, coded: EncodedVector) -> bool:
        """Test whether the unit's update, from its first row, gives the vector back."""
        update = self._updates[unit]
        extracted = unit in self._digests
        if not extracted:
            np.divide(coded, coefficient, out=update, casting="same_kind")
            snap(update, grid=self._grid, out=update)
        encoded = (
            update if coefficient == 1.0 else np.multiply(update, coefficient, dtype=np.float64)
        )
        explained = np.array_equal(encoded, coded)
        if explained and not extracted:
            own = update[: self._sizes[unit]]
            self._digests[unit] = unit_digest(own, statistics=self._statistics)
        return explained

    def updates(self, rows: Iterable[int]) -> tuple[FloatArray, tuple[bytes, ...]] | None:
        """Updates of shape (M, P) and their digests, if these rows hold every unit alone.

        None if a unit is missing, or a row holds several units or contradicts another.
        """
        units = range(len(self._sizes))
        if not units or {self._units.get(row) for row in rows} != set(units):
            return None
        return self._updates, tuple(self._digests[unit] for unit in units)
