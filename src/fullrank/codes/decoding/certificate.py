"""The certificate: a proof that the decoded and rounded vectors are the true updates.

Notation: C the received rows (n, M), sorted; D its computed left inverse; U* the true updates,
multiples of the grid g; Y the received vectors; X = D Y; U = X rounded to the grid; u = 2^-53 the
unit roundoff, gamma_k = k u / (1 - k u) [Higham02, chapter 3]; L the largest load of a row. An
honest row satisfies |Y - C U*| <= gamma_L |C||U*|, and Y = C U* where encoding is exact
(``base.dyadic``). The derivation is in docs/certificate.md.

Parity checks are equations that honest vectors satisfy for any updates, exact or not. With N an
orthonormal basis of the left null space of C_J, shape (n, n - M), honest vectors have N^T Y = 0 up
to rounding, however ill conditioned C_J is. An error in row j alone shows iff row j of N is not
zero, which is rank(C_{J without j}) = M; it cannot be mistaken for one in row k iff their rows of N
are not parallel, which is rank(C_{J without j, k}) = M. Where decoding is not exact this is all the
audit that vectors have; digests say nothing about them then.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from fullrank.codes.decoding.rows import RowSpace
from fullrank.codes.targets import is_each_unit, largest_sum
from fullrank.common.types import BoolArray, Matrix, Vector

_ROUNDOFF = 2.0**-53
_LARGEST = float(np.finfo(np.float32).max)
"""Bound on the magnitude of an update, which was a float32."""
_SAFETY = 1.0 + 2.0**-20
"""Allowance for the rounding of the bounds, which are sums of non-negative terms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedColumns:
    """Some columns of the decoded target."""

    values: Matrix
    """On the grid, shape (targets, columns)."""
    exact: bool
    """True if these are proved to be the true values."""
    consistent: bool
    """False if no honest vectors decode to these values."""
    error_bound: float
    """Largest distance of an entry from the truth, if the vectors are honest; 0 when exact."""


def gamma(operations: int) -> float:
    """Relative error of ``operations`` roundings."""
    return operations * _ROUNDOFF / (1.0 - operations * _ROUNDOFF)


def left_inverse(rows: Matrix) -> Matrix:
    """D with D C = I by Householder QR, shape (M, n); C of full column rank.

    Never through the normal equations, which square the condition.
    """
    orthogonal, triangle = np.linalg.qr(rows)
    return _solve(triangle, orthogonal.T)


def _solve(triangle: Matrix, right: Matrix) -> Matrix:
    """X with T X = ``right``, T upper triangular."""
    from scipy.linalg import solve_triangular  # large, and needed for decoding only

    return np.asarray(solve_triangular(triangle, right, check_finite=False))


def snap(values: Matrix, grid: float | None) -> Matrix:
    """Round to multiples of the grid in place, half to even; zeros come out as +0.0."""
    if grid is not None:
        values *= 1.0 / grid
        np.rint(values, out=values)
        values *= grid
    values += 0.0
    return values


def quantum(matrix: Matrix) -> float:
    """The largest power of two that divides every coefficient.

    >>> quantum(np.array([[1.5, -3.0], [0.0, 0.25]]))
    0.25
    """
    mantissa, exponent = np.frexp(matrix[matrix != 0.0])
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    _, twos = np.frexp((integer & -integer).astype(np.float64))
    return float(np.ldexp(1.0, int((exponent - 53 + twos - 1).min())))


class Solver(Protocol):
    """Decodes blocks of columns."""

    def solve(self, coded: Matrix) -> DecodedColumns:
        """The target of a block of coded vectors, shape (n, columns)."""


def solver_of(rows: Matrix, target: Matrix, *, grid: float | None, limit: float) -> Solver:
    """The solver of T U from rows C that span T.

    Units that all rows and targets combine alike act as one unit, their sum, which lies on the grid
    as they do. If the columns of C that remain are independent, the proof rests on the vectors
    alone; otherwise on the assumption |u| <= ``limit``.

    Args:
        rows: C, shape (n, M).
        target: T, shape (K, M).
        grid: The grid of the updates.
        limit: Largest |u| of an honest update.
    """
    if is_each_unit(target):
        return UnitsSolver(rows, grid)
    merged = np.unique(np.vstack([rows, target]), axis=1)
    if np.linalg.matrix_rank(merged[: len(rows)]) == merged.shape[1]:
        return CombinationSolver(merged[: len(rows)], merged[len(rows) :], grid)
    return WeightsSolver(rows, target, grid, limit=limit)


class UnitsSolver:
    """Decodes every u_i from rows of full column rank."""

    def __init__(self, rows: Matrix, grid: float | None) -> None:
        count, units = rows.shape
        load = int(np.count_nonzero(rows, axis=1).max())
        self._rows, self._size, self._grid = rows, np.abs(rows), grid
        self._inverse = left_inverse(rows)
        amplification = np.abs(self._inverse) @ self._size
        departure = np.abs(self._inverse @ rows - np.eye(units)) + gamma(count + 1) * amplification
        self._amplification, self._load = amplification, load
        self._forward = _SAFETY * (departure + gamma(count + load) * amplification)
        self._growth = float(self._forward.sum(axis=1).max())
        heaviest = float(self._size.sum(axis=1).max())
        self._exact_limit = 2.0**52 * quantum(rows) * grid / heaviest if grid else -1.0

    def solve(self, coded: Matrix) -> DecodedColumns:
        """Decode a block of coded vectors, shape (n, columns)."""
        with np.errstate(over="ignore", invalid="ignore"):  # a corrupted vector may hold 1e300
            return self._solve(coded)

    def _solve(self, coded: Matrix) -> DecodedColumns:
        values = snap(self._inverse @ coded, self._grid)
        encoded = self._rows @ values
        explained = np.array_equal(encoded, coded)
        if not explained and self._encodes_exactly(values):  # the residual has no rounding error
            values += snap(self._inverse @ (coded - encoded), self._grid)
            encoded = self._rows @ values
            explained = np.array_equal(encoded, coded)
        if explained and self._encodes_exactly(values) and self._growth <= 0.5:
            return DecodedColumns(values=values, exact=True, consistent=True, error_bound=0.0)
        if not (np.abs(values) <= _LARGEST).all():
            return DecodedColumns(values=values, exact=False, consistent=False, error_bound=np.inf)
        if self._growth > 0.5:  # C_J is singular in float64: no statement is possible
            return DecodedColumns(values=values, exact=False, consistent=True, error_bound=np.inf)
        return self._judge(coded, values, coded - encoded)

    def _encodes_exactly(self, values: Matrix) -> bool:
        largest = max(values.max(initial=0.0), -values.min(initial=0.0))
        return bool(largest <= self._exact_limit)

    def _judge(self, coded: Matrix, values: Matrix, residual: Matrix) -> DecodedColumns:
        """Test, despite rounding errors in Y, if U and no other grid vector explains the block."""
        raw = self._inverse @ coded
        honest = _SAFETY * gamma(2 * self._load + 1)
        error = (self._forward @ np.abs(raw)).max(axis=0) / (1.0 - self._growth)
        explained = (np.abs(residual) <= honest * (self._size @ np.abs(values))).all(axis=0)
        spread = self._size @ (error + honest * (np.abs(raw) + error))
        possible = (np.abs(coded - self._rows @ raw) <= spread).all(axis=0)
        half = self._grid / 2.0 if self._grid else 0.0
        contradicted = (~explained & (error < half)) | ~possible
        exact = bool((explained & self._resolved(values)).all())
        return DecodedColumns(
            values=values,
            exact=exact,
            consistent=not contradicted.any(),
            error_bound=0.0 if exact else float(error.max(initial=0.0)) + half,
        )

    def _resolved(self, values: Matrix) -> BoolArray:
        """Columns where two grid vectors that explain Y would be closer than the grid."""
        reach = (self._amplification @ np.abs(values)).max(axis=0)
        apart = _SAFETY * gamma(4 * self._load + 2) * reach / (1.0 - self._growth)
        return np.asarray(apart < (self._grid or 0.0))


class CombinationSolver:
    """Decodes T U from rows of full column rank: every u_i first, then their sums.

    The sums are exact while sum_i |t_i| |u_i| <= 2^53 grid (``targets.largest_sum``).
    """

    def __init__(self, rows: Matrix, target: Matrix, grid: float | None) -> None:
        self._units = UnitsSolver(rows, grid)
        self._target, self._size, self._grid = target, np.abs(target), grid
        self._error = gamma(rows.shape[1])

    def solve(self, coded: Matrix) -> DecodedColumns:
        """Decode a block of coded vectors, shape (n, columns)."""
        units = self._units.solve(coded)
        with np.errstate(over="ignore", invalid="ignore"):  # a corrupted vector may hold 1e300
            values = snap(self._target @ units.values, self._grid)
            reach = float((self._size @ np.abs(units.values)).max(initial=0.0))
        added = self._grid is not None and reach <= largest_sum(self._grid)
        if units.exact and added:
            return replace(units, values=values)
        spread = float(self._size.sum(axis=1).max()) * units.error_bound
        rounding = 0.0 if added else _SAFETY * self._error * reach + (self._grid or 0.0) / 2.0
        return replace(units, values=values, exact=False, error_bound=spread + rounding)


class WeightsSolver:
    """Decodes T U by weights D with D C = T from rows whose space holds that of T.

    The bound is a priori, from |u| <= ``limit``: the rows need not determine the units, so nothing
    can be checked against them but rows that depend on others.
    """

    def __init__(self, rows: Matrix, target: Matrix, grid: float | None, *, limit: float) -> None:
        count, units = rows.shape
        space = RowSpace(units)
        kept = np.array([space.add(row) for row in rows])
        self._weights = np.zeros((len(target), count))
        self._weights[:, kept] = _combination(rows[kept], target)
        self._checks = np.zeros((count - int(kept.sum()), count))
        self._checks[:, kept] = _combination(rows[kept], rows[~kept])
        self._checks[:, ~kept] = -np.eye(len(self._checks))
        self._grid = grid
        self._error = float(_residue(self._weights, rows, target, limit).max())
        self._tolerated = _residue(self._checks, rows, np.zeros((1, units)), limit)[:, None]
        largest = limit * float(np.abs(target).sum(axis=1).max())
        self._added = grid is not None and largest <= largest_sum(grid)

    def solve(self, coded: Matrix) -> DecodedColumns:
        """Decode a block of coded vectors, shape (n, columns)."""
        with np.errstate(over="ignore", invalid="ignore"):  # a corrupted vector may hold 1e300
            values = snap(self._weights @ coded, self._grid)
            consistent = bool((np.abs(self._checks @ coded) <= self._tolerated).all())
        half = self._grid / 2.0 if self._grid else 0.0
        exact = consistent and self._added and self._error < half
        bound = 0.0 if exact else self._error + half
        return DecodedColumns(values=values, exact=exact, consistent=consistent, error_bound=bound)


def _combination(basis: Matrix, wanted: Matrix) -> Matrix:
    """Weights w with w ``basis`` = ``wanted``, shape (wanted, basis); basis of full row rank."""
    orthogonal, triangle = np.linalg.qr(basis.T)
    return _solve(triangle, orthogonal.T @ wanted.T).T


def _residue(weights: Matrix, rows: Matrix, wanted: Matrix, limit: float) -> Vector:
    """Bound of |weights Y - wanted U*| where |U*| <= limit, shape (weights,)."""
    count, load = len(rows), int(np.count_nonzero(rows, axis=1).max())
    size = np.abs(weights) @ np.abs(rows)
    missed = np.abs(weights @ rows - wanted) + gamma(count + 1) * size
    return np.asarray(_SAFETY * limit * (missed + gamma(count + load) * size).sum(axis=1))


INDEPENDENT = 1e-6
"""Rows of N below this norm, or with this sine between them, count as zero, or as parallel."""

FLOAT64 = 1e-13
"""Threshold for learners of one fingerprint, whose vectors are off by the rounding of float64: in
2,000 clean rounds of each code, (M, N) from (3, 5) to (10, 15), residuals stay below 1e-15."""


class Parity:
    """The checks of some received rows.

    Args:
        rows: C_J, shape (n, M), of rank M.

    >>> parity = Parity(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    >>> parity.auditable.tolist(), parity.nameable.tolist()
    ([False, True, True], [False, False, False])
    >>> parity.residual(np.array([[3.0], [2.0], [2.5]])) > 0.1
    True
    """

    def __init__(self, rows: Matrix) -> None:
        complete = np.linalg.qr(rows, mode="complete")[0]
        self._checks: Matrix = complete[:, rows.shape[1] :]
        self._norms = np.linalg.norm(self._checks, axis=1)

    @property
    def auditable(self) -> BoolArray:
        """Rows whose error shows, shape (n,): without one of them the rank is still M."""
        return np.asarray(self._norms > INDEPENDENT)

    @property
    def nameable(self) -> BoolArray:
        """Rows whose error cannot be that of another row, shape (n,).

        Without one of them and any second auditable row the rank is still M.
        """
        auditable = self.auditable
        directions = self._checks / np.where(auditable, self._norms, 1.0)[:, None]
        parallel = 1.0 - (directions @ directions.T) ** 2 <= INDEPENDENT**2
        np.fill_diagonal(parallel, val=False)
        return np.asarray(auditable & ~(parallel & auditable).any(axis=1))

    def residual(self, coded: Matrix) -> float:
        """Largest |N^T Y| relative to the largest |Y|, Y of shape (n, P); 0 without checks."""
        largest = np.abs(coded).max(initial=0.0)
        if not largest or not self._checks.size:
            return 0.0
        return float(np.abs(self._checks.T @ (coded / largest)).max())


def culprit(rows: Matrix, coded: Matrix, *, threshold: float) -> int | None:
    """The one row without which the residual vanishes; None if it is small or the row uncertain.

    Args:
        rows: C_J, shape (n, M).
        coded: Y, shape (n, P).
        threshold: Largest residual that counts as none.
    """
    parity = Parity(rows)
    if parity.residual(coded) <= threshold:
        return None
    mended = []
    for row in np.flatnonzero(parity.auditable):
        others = np.arange(len(rows)) != row
        if Parity(rows[others]).residual(coded[others]) <= threshold:
            mended.append(int(row))
    return mended[0] if len(mended) == 1 and parity.nameable[mended[0]] else None
