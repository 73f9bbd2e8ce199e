"""The row space of the rows received so far, as an orthonormal basis grown row by row."""

import numpy as np

from fullrank.common.types import Matrix, Vector

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
