"""Regular low-density parity-check code over GF(2), used over the reals."""

from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code, CodeFamily, register, require_enough_rows
from fullrank.common.errors import CodeError
from fullrank.common.types import BoolArray, Matrix


@register("ldpc")
@dataclass(frozen=True, slots=True, kw_only=True)
class LDPC(CodeFamily):
    """The three steps of [Wang21, section III-C], after [Gabidulin06].

    1. A is the w x w cyclic shift, A[r, r + 1 mod w] = 1, with w prime.
    2. The parity matrix H has gamma x R / w blocks; block (a, b) is A^(a b).
    3. C is a systematic generator of the code of H: R x M with M = R - rank_GF(2)(H).

    C holds I_M among its rows, so it has rank M; it is 0/1, so encoding is exact. A set of received
    rows decodes by elimination over the reals, most often by peeling alone.

    Only some sizes exist: with R = 15, M = 12, 10, 8 (w = 3) and 10, 6, 2 (w = 5); the error lists
    them for any R.

    Differs from the paper in: exponents a b throughout (the printed matrix has slips in row 2,
    block 3 and in the last column); H has R / w column blocks, not w; C is R x M.

    Properties:
        Tolerance: measured.
        Load: nnz(C) / R on average, 1 in M rows.
        Exists: R = k w with w prime, and R - rank_GF(2)(H) = M for some gamma.

    Args:
        w: Block size, prime; 0 takes the first that gives M.
        gamma: Row blocks of H, the ones in a column; 0 takes the first that gives M.

    >>> code = LDPC().build(rows=15, units=8, seed=0)
    >>> code.matrix.shape, code.tolerance, code.certificate, int(code.load.sum())
    ((15, 8), 1, 'exhaustive', 28)
    """

    w: int = 0
    gamma: int = 0

    def rows_for(self, units: int) -> int:
        """The fewest rows above M for which a code exists.

        Raises:
            CodeError: The given ``w`` and ``gamma`` give no code of so many units.
        """
        for rows in range(units + 1, 2 * (units + self.w**2) + 4):
            if any(self._fits(units, *option) for option in sizes(rows)):
                return rows
        raise CodeError(f"ldpc has no code with units = {units}{self._asked()}")

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """The first (w, gamma) that gives these sizes; ``seed`` is not used.

        Raises:
            CodeError: None does; the message lists (M, w, gamma) that exist for this R.
        """
        require_enough_rows("ldpc", rows=rows, units=units)
        for size, w, gamma in sizes(rows):
            if self._fits(units, size, w, gamma):
                return Code(name="ldpc", matrix=systematic_generator(parity_matrix(rows, w, gamma)))
        existing = ", ".join(f"(M={m}, w={w}, gamma={gamma})" for m, w, gamma in sizes(rows))
        raise CodeError(
            f"ldpc has no code with rows = {rows}, units = {units}{self._asked()}; "
            + (f"for {rows} rows there are {existing}" if existing else f"none for {rows} rows")
        )

    def _fits(self, units: int, size: int, w: int, gamma: int) -> bool:
        return size == units and self.w in (0, w) and self.gamma in (0, gamma)

    def _asked(self) -> str:
        """The parameters that were given, for a message."""
        given = {"w": self.w, "gamma": self.gamma}
        return "".join(f", {name} = {value}" for name, value in given.items() if value)


def sizes(rows: int) -> list[tuple[int, int, int]]:
    """All (M, w, gamma) that exist for R rows; per w each M once, with the least gamma.

    >>> sizes(15)
    [(12, 3, 1), (10, 3, 2), (8, 3, 3), (10, 5, 1), (6, 5, 2), (2, 5, 3)]
    """
    options = []
    for w in (w for w in range(2, rows) if rows % w == 0 and _is_prime(w)):
        smallest = rows
        for gamma in range(1, rows // w + 1):
            units = rows - len(_reduce(parity_matrix(rows, w, gamma))[1])
            if not 0 < units < smallest:
                break
            smallest = units
            options.append((units, w, gamma))
    return options


def parity_matrix(rows: int, w: int, gamma: int) -> BoolArray:
    """H over GF(2), shape (gamma w, R)."""
    shift = np.roll(np.eye(w, dtype=np.bool_), 1, axis=1)
    powers = [np.asarray(np.linalg.matrix_power(shift.astype(int), k), bool) for k in range(w)]
    blocks = [[powers[a * b % w] for b in range(rows // w)] for a in range(gamma)]
    return np.block(blocks).astype(np.bool_)


def systematic_generator(parity: BoolArray) -> Matrix:
    """C whose columns span the null space of H over GF(2), shape (R, M).

    Pivots are sought from the last column on, so that message bits take the first free columns:
    row k of the identity in C is the k-th column of H without a pivot.
    """
    reduced, pivots = _reduce(parity)
    columns = parity.shape[1]
    free = [column for column in range(columns) if column not in pivots]
    generator = np.zeros((columns, len(free)))
    generator[free, np.arange(len(free))] = 1.0
    for row, pivot in enumerate(pivots):
        generator[pivot] = reduced[row, free]
    return generator


def _reduce(parity: BoolArray) -> tuple[BoolArray, list[int]]:
    """Reduced echelon form over GF(2) and its pivot columns, last columns first."""
    reduced = parity.copy()
    pivots: list[int] = []
    for column in reversed(range(parity.shape[1])):
        below = np.flatnonzero(reduced[len(pivots) :, column])
        if below.size == 0:
            continue
        row = len(pivots)
        reduced[[row, row + below[0]]] = reduced[[row + below[0], row]]
        others = np.flatnonzero(reduced[:, column])
        reduced[others[others != row]] ^= reduced[row]
        pivots.append(column)
        if len(pivots) == len(reduced):
            break
    return reduced, pivots


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))
