"""The decoder: incremental rank until the target decodes, then one factorisation of sorted rows.

With a code from ``make_code``, decoding is exact: the result is the same bits for every set J of
received rows and every order of arrival (docs/certificate.md). The GEMMs run over column
blocks of a fixed width; another BLAS, thread number or width may change their last bits, and
rounding to the grid removes the difference.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fullrank.codes.base import Code
from fullrank.codes.decoding.certificate import Solver, solver_of
from fullrank.codes.decoding.rows import RowSpace
from fullrank.codes.targets import LIMIT, checked_target, described, each_unit, rank_of
from fullrank.common.errors import (
    CodeError,
    Corrupted,
    InvalidContribution,
    NotDecodable,
    NotFinite,
)
from fullrank.common.types import EncodedVector, Matrix, UnitIndex, Vector
from fullrank.common.updates import GRID


class Peeling:
    """Units that follow by substitution alone; O(load) per row, no arithmetic.

    Sufficient for decodability, not necessary: rows may have full rank while every one of them
    still has two unknowns (then elimination is needed). For codes with unit rows (uncoded,
    replication, LDPC, LDGM) it almost always agrees with the rank at hardly any cost.

    >>> peeling = Peeling(3)
    >>> peeling.add([0, 1]), peeling.add([1, 2]), peeling.resolved
    (None, None, set())
    >>> peeling.add([2])
    >>> sorted(peeling.resolved)
    [0, 1, 2]
    """

    def __init__(self, units: int) -> None:
        self.resolved: set[UnitIndex] = set()
        self._unknown: list[set[UnitIndex]] = []
        self._waiting: list[list[int]] = [[] for _ in range(units)]

    def add(self, support: Iterable[UnitIndex]) -> None:
        """Take a row whose non-zero coefficients are at ``support``."""
        unknown = set(support) - self.resolved
        if len(unknown) == 1:
            self._resolve(unknown.pop())
        elif unknown:
            for unit in unknown:
                self._waiting[unit].append(len(self._unknown))
            self._unknown.append(unknown)

    def _resolve(self, unit: UnitIndex) -> None:
        ready = [unit]
        while ready:
            unit = ready.pop()
            if unit in self.resolved:
                continue
            self.resolved.add(unit)
            for row in self._waiting[unit]:
                unknown = self._unknown[row]
                unknown.discard(unit)
                if len(unknown) == 1:
                    ready.extend(unknown)
            self._waiting[unit].clear()


class ReceivedRows:
    """Rows of C, or combinations named by a number, with their coded vectors.

    Args:
        matrix: C, shape (R, M).
    """

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._coefficients: dict[int, Vector] = {}
        self._vectors: dict[int, EncodedVector | None] = {}

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
            vector: y_j, shape (P,), kept without copying where it is float64 or float32; None: rank
                only.
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

    def _checked(self, row: int, vector: ArrayLike) -> EncodedVector:
        coded = np.asarray(vector)
        if coded.dtype != np.float32:
            coded = coded.astype(np.float64, copy=False)
        length = next((v.shape for v in self._vectors.values() if v is not None), coded.shape)
        if coded.ndim != 1 or coded.shape != length:
            raise InvalidContribution(
                f"the vector of row {row} has shape {coded.shape}; expected {length or '(P,)'}"
            )
        if not np.isfinite(coded).all():
            raise NotFinite(f"the vector of row {row} has values that are not finite")
        return coded

    def matrix(self) -> Matrix:
        """C_J, shape (|J|, M)."""
        return np.stack([self._coefficients[row] for row in self.numbers])

    def vectors(self) -> list[EncodedVector]:
        """Coded vectors in the order of ``numbers``, each of shape (P,).

        Raises:
            NotDecodable: A row came without its vector.
        """
        vectors = [self._vectors[row] for row in self.numbers]
        coded = [vector for vector in vectors if vector is not None]
        if len(coded) < len(vectors):
            raise NotDecodable("rows were offered without vectors; only their rank is known")
        return coded


BLOCK_COLUMNS = 4096
"""Columns decoded at once: with M = 64 a block is 2 MiB, about a level-2 cache."""


def require_rounding_to_nearest(one: float = 1.0, tiny: float = 2.0**-60) -> None:
    """Check the rounding mode of this thread, on which every certificate rests.

    Raises:
        CodeError: It is another one.
    """
    if one + tiny != one or one - tiny != one:  # arguments, which no compiler adds up beforehand
        raise CodeError(
            "this process does not round to the nearest number: a library has changed the "
            "processor's rounding mode; run without that library"
        )


class Decoder:
    """Take coded vectors as they arrive; say when they decode, and the decoded target T U.

    Args:
        code: A ``Code``, or C itself, shape (R, M).
        target: T, shape (K, M); by default the code's own, of a bare C the identity.
        grid: The grid the updates lie on, a power of two; ``None`` disables rounding, and then
            nothing is ever exact.
        limit: Largest |u| of an honest update; used only where J determines T U but not the units.

    Attributes:
        units: M, the number of units.
        target: T, shape (K, M).
        grid: As given.
        exact: True, after ``decode``, if the result is proved to be the true target, bit for bit.
        error_bound: After ``decode``: largest possible error of an entry, if the vectors are
            honest.

    >>> from fullrank.codes import make_code
    >>> code = make_code("cyclic", rows=4, units=3)
    >>> updates = np.array([[0.5, 0.0], [-0.25, 2.0**-36], [0.125, 0.0]])
    >>> decoder = Decoder(code)
    >>> for row in (3, 1):
    ...     is_new = decoder.offer(row=row, vector=code.matrix[row] @ updates)
    >>> decoder.rank, decoder.decodable, sorted(decoder.decodable_units)
    (2, False, [2])
    >>> decoder.offer(row=2, vector=code.matrix[2] @ updates)
    True
    >>> decoder.decodable, bool((decoder.decode() == updates).all()), decoder.exact
    (True, True, True)
    """

    def __init__(
        self,
        code: Code | Matrix,
        *,
        target: Matrix | None = None,
        grid: float | None = GRID,
        limit: float = LIMIT,
    ) -> None:
        require_rounding_to_nearest()
        if grid is not None and (grid <= 0.0 or np.frexp(grid)[0] != 0.5):
            raise CodeError(f"grid must be a power of two or None: {grid}")
        self._matrix = code.matrix if isinstance(code, Code) else np.asarray(code, np.float64)
        self.units = int(self._matrix.shape[1])
        if target is not None:
            target = checked_target(target, units=self.units)
        default = code.target if isinstance(code, Code) else each_unit(self.units)
        self.target: Matrix = default if target is None else target
        self._target_rank = rank_of(self.target)
        self.grid = grid
        self._limit = limit
        self._rows = ReceivedRows(self._matrix)
        self._pending: list[Vector] = []
        self._space = RowSpace(self._matrix.shape[1])
        self._peeling = Peeling(self._matrix.shape[1])
        self._complete = False
        self.exact = False
        self.error_bound = np.inf

    @property
    def received(self) -> tuple[int, ...]:
        """Rows offered so far, ascending: J in the papers."""
        return self._rows.numbers

    def offer(
        self, *, row: int, vector: ArrayLike | None = None, coefficients: ArrayLike | None = None
    ) -> bool:
        """Take a row; a row already offered is ignored.

        Args:
            row: j, the row of C. With ``coefficients`` any number that names the row.
            vector: y_j, shape (P,), kept without copying where it is float64 or float32; ``None``
                tracks the rank only.
            coefficients: The row's own coefficients, shape (M,), where they are not C's row j.

        Returns:
            True if the row is new.

        Raises:
            InvalidContribution: No such row, wrong shape, or a value that is not finite.
        """
        if row in self._rows:
            return False
        combination = self._rows.add(row, vector, coefficients)
        self._pending.append(combination)
        self._peeling.add(np.flatnonzero(combination).tolist())
        self.exact, self.error_bound = False, np.inf
        return True

    @property
    def rank(self) -> int:
        """Rank of C_J."""
        if len(self._peeling.resolved) == self.units:
            return self.units
        return self._row_space().rank

    def _row_space(self) -> RowSpace:
        for row in self._pending:
            self._space.add(row)
        self._pending.clear()
        return self._space

    @property
    def decodable(self) -> bool:
        """True once the rows determine the target."""
        if not self._complete and len(self._rows) >= self._target_rank:
            self._complete = self.rank == self.units or (
                self._target_rank < self.units and all(map(self._row_space().contains, self.target))
            )
        return self._complete

    @property
    def decodable_units(self) -> frozenset[UnitIndex]:
        """Units i whose u_i the rows determine: e_i in the row space."""
        if len(self._peeling.resolved) == self.units:
            return frozenset(range(self.units))
        space = self._row_space()
        return frozenset(unit for unit, row in enumerate(np.eye(self.units)) if space.contains(row))

    @property
    def condition(self) -> float:
        """Condition of C_J, sigma_1 / sigma_rank; inf until decodable."""
        if not self.decodable:
            return np.inf
        return _condition(self._rows.matrix().tobytes(), self.units, self.rank)

    def decode(self) -> Matrix:
        """The target on the grid; sets ``exact`` and ``error_bound``.

        All rows received are used, sorted, so that the arrival order cannot matter.

        Returns:
            Shape (K, P).

        Raises:
            NotDecodable: The rows do not determine the target, or came without vectors.
            Corrupted: No honest vectors look like these; leave rows out in turn or wait for more.
        """
        return np.hstack([block for _, block in self.blocks()])

    def blocks(self) -> Iterator[tuple[int, Matrix]]:
        """``decode`` in column blocks: (first column, values); peak memory is one block.

        ``exact`` and ``error_bound`` are set when the last block has been taken.
        """
        solver = self._solver()
        coded = self._rows.vectors()
        exact, bound = True, 0.0
        for start in range(0, max(1, len(coded[0])), BLOCK_COLUMNS):
            columns = slice(start, start + BLOCK_COLUMNS)
            block = solver.solve(np.stack([vector[columns] for vector in coded], dtype=np.float64))
            if not block.consistent:
                raise Corrupted(
                    f"rows {list(self.received)} contradict their coefficients near entry {start}; "
                    "leave rows out in turn or wait for more"
                )
            exact, bound = exact and block.exact, max(bound, block.error_bound)
            yield start, block.values
        self.exact, self.error_bound = exact, bound

    def _solver(self) -> Solver:
        if not self.decodable:
            raise NotDecodable(
                f"rows {list(self.received)} of rank {self.rank} do not determine "
                f"{described(self.target)}; wait for more rows"
            )
        return solver_of(self._rows.matrix(), self.target, grid=self.grid, limit=self._limit)


@lru_cache(maxsize=64)
def _condition(rows: bytes, units: int, rank: int) -> float:
    """Condition of rows of float64; a run without stragglers receives the same ones each time."""
    values = np.linalg.svd(np.frombuffer(rows).reshape(-1, units), compute_uv=False)
    return float(values[0] / values[rank - 1])
