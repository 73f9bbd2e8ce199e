"""Received rows: their row space, the units that complete it, and updates of rows of one unit.

A row of a single unit gives its update on arrival, without solving: a float32 u on the grid with
c u = y, entry by entry, is the only one: another would be off by at least 2^-24 of itself, and the
product in float64 by no more than 2^-53.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from fullrank.codes.conditions import determines
from fullrank.codes.targets import is_each_unit
from fullrank.common.types import EncodedVector, FloatArray, Matrix, UnitIndex, Vector
from fullrank.common.updates import GRID, snap, unit_digest

DEPENDENT = 1e-10
"""A row whose part outside the row space is below this share of its norm adds no rank.

Rounding leaves at most about 1e-14 of a dependent row; independent rows of usable codes leave more
than the reciprocal of their condition, 1e-7 at worst.
"""


class RowSpace:
    """Incremental rank by Gram-Schmidt with reorthogonalisation: O(M rank) per row.

    >>> space = RowSpace(2)
    >>> space.add(np.array([1.0, 1.0])), space.add(np.array([2.0, 2.0])), space.rank
    (True, False, 1)
    >>> space.contains(np.array([3.0, 3.0])), space.contains(np.array([1.0, 0.0]))
    (True, False)
    """

    def __init__(self, units: int) -> None:
        self.rank = 0
        self._basis = np.empty((units, units))

    @property
    def basis(self) -> Matrix:
        """Orthonormal rows, shape (rank, M)."""
        return self._basis[: self.rank]

    def add(self, row: Vector) -> bool:
        """Take a row; True if it raised the rank."""
        if self.rank == len(self._basis):
            return False
        residual, share = self._outside(row)
        if share <= DEPENDENT:
            return False
        self._basis[self.rank] = residual
        self.rank += 1
        return True

    def contains(self, row: Vector) -> bool:
        """True if the row is a combination of those taken."""
        return self._outside(row)[1] <= DEPENDENT

    def _outside(self, row: Vector) -> tuple[Vector, float]:
        """Unit vector of the part outside the row space, and its share of the row's norm."""
        norm = float(np.linalg.norm(row))
        if norm == 0.0:
            return row, 0.0
        share = 1.0
        residual = row / norm
        for _ in range(3):  # each pass cleans what the division below has magnified
            residual = residual - (self.basis @ residual) @ self.basis
            length = float(np.linalg.norm(residual))
            share *= length
            if share <= DEPENDENT:
                return residual, share
            residual = residual / length
        return residual, share


def completing_units(rows: Matrix, *, target: Matrix | None = None) -> list[UnitIndex]:
    """Few units that, each sent alone, complete the rows: [rows; e_i ...] spans the target.

    Pivoting picks a well conditioned choice. For T = I it is the least possible, M - rank(C_J)
    units; for a lower target no unit of the choice can be spared.

    Args:
        rows: C_J, shape (J, M); may be empty.
        target: T, shape (K, M); by default the identity.

    Returns:
        Units, ascending.

    >>> completing_units(np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]))
    [0, 2]
    """
    from scipy.linalg import null_space, qr  # large, and learners never need it

    missing = null_space(np.vstack([rows, np.zeros(rows.shape[1])]))
    _, _, order = qr(missing.T, mode="economic", pivoting=True)
    chosen: list[UnitIndex] = sorted(order[: missing.shape[1]].tolist())
    if target is None or is_each_unit(target):
        return chosen
    return _spared(rows, chosen, target)


def _spared(rows: Matrix, chosen: list[UnitIndex], target: Matrix) -> list[UnitIndex]:
    """The chosen units without those that the target does without."""
    units = np.eye(rows.shape[1])
    for unit in list(chosen):
        others = [other for other in chosen if other != unit]
        if determines(np.vstack([rows, units[others], np.zeros(rows.shape[1])]), target):
            chosen = others
    return chosen


class SingleUnitRows:
    """Extract and hash the updates of units that rows hold alone.

    Args:
        unit_sizes: P_i of each unit.
        statistics: Number of last entries of each update that hold statistics.

    >>> rows = SingleUnitRows([2, 1])
    >>> rows.add(0, np.array([0.0, 2.0]), np.array([1.0, 0.0]))
    >>> rows.add(1, np.array([-1.0, 0.0]), np.array([0.5, -0.25]))
    >>> rows.precompute()
    >>> updates, digests = rows.updates([0, 1])
    >>> updates.tolist(), digests == tuple(map(unit_digest, (updates[0], updates[1, :1])))
    ([[-0.5, 0.25], [0.5, 0.0]], True)
    """

    def __init__(self, unit_sizes: Sequence[int], *, statistics: int = 0) -> None:
        self._sizes, self._statistics = tuple(unit_sizes), statistics
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
            snap(update, grid=GRID, out=update)
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
