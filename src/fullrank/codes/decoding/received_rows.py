"""The rows received so far: coefficients, and coded vectors of one length."""

import numpy as np
from numpy.typing import ArrayLike

from fullrank.common.errors import InvalidContribution, NotDecodable
from fullrank.common.types import Matrix, Vector


class ReceivedRows:
    """Rows of C, or combinations named by a number, with their coded vectors.

    Args:
        matrix: C, shape (R, M).
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._coefficients: dict[int, Vector] = {}
        self._vectors: dict[int, Vector | None] = {}

    def __len__(self) -> int:
        return len(self._coefficients)

    def __contains__(self, row: int) -> bool:
        return row in self._coefficients

    @property
    def numbers(self) -> tuple[int, ...]:
        """Rows received, ascending: J in the papers."""
        return tuple(sorted(self._coefficients))

    def add(self, row: int, vector: ArrayLike | None, coefficients: ArrayLike | None) -> Vector:
        """Take a row that was not received before; returns its coefficients, shape (M,).

        Args:
            row: Row of C. With ``coefficients`` any number that names the row.
            vector: y_j, shape (P,), kept without copying where it is float64; None: rank only.
            coefficients: The row's own coefficients, shape (M,), where they are not C's row j.

        Raises:
            InvalidContribution: No such row, wrong shape, or a value that is not finite.
        """
        combination = self._combination(row, coefficients)
        self._vectors[row] = None if vector is None else self._checked(row, vector)
        self._coefficients[row] = combination
        return combination

    def _combination(self, row: int, coefficients: ArrayLike | None) -> Vector:
        if coefficients is not None:
            combination = np.asarray(coefficients, dtype=np.float64)
            units = self._matrix.shape[1]
            if combination.shape != (units,):
                raise InvalidContribution(
                    f"row {row} has coefficients of shape {combination.shape}, not ({units},)"
                )
            return combination
        if not 0 <= row < len(self._matrix):
            raise InvalidContribution(f"row {row} is outside 0..{len(self._matrix) - 1}")
        return np.asarray(self._matrix[row])

    def _checked(self, row: int, vector: ArrayLike) -> Vector:
        coded = np.asarray(vector, dtype=np.float64)
        length = next((v.shape for v in self._vectors.values() if v is not None), coded.shape)
        if coded.ndim != 1 or coded.shape != length:
            raise InvalidContribution(
                f"the vector of row {row} has shape {coded.shape}; expected {length or '(P,)'}"
            )
        if not np.isfinite(coded.sum()):  # one pass, and no array of booleans
            raise InvalidContribution(f"the vector of row {row} has values that are not finite")
        return coded

    def matrix(self) -> Matrix:
        """C_J, shape (|J|, M)."""
        return np.stack([self._coefficients[row] for row in self.numbers])

    def vectors(self) -> list[Vector]:
        """Coded vectors in the order of ``numbers``, each of shape (P,).

        Raises:
            NotDecodable: A row came without its vector.
        """
        vectors = [self._vectors[row] for row in self.numbers]
        coded = [vector for vector in vectors if vector is not None]
        if len(coded) < len(vectors):
            raise NotDecodable("rows were offered without vectors; only their rank is known")
        return coded
