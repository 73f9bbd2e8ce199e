"""Number of arrivals that end a round: from the rank of every prefix of rows, and its variance.

A learner's rows arrive together.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from fullrank.codes.analysis import decoded_variances, variance_ok
from fullrank.codes.base import Code
from fullrank.codes.conditions import determines
from fullrank.codes.decoding.rows import DEPENDENT
from fullrank.codes.targets import rank_of
from fullrank.common.errors import NotDecodable
from fullrank.common.types import BoolArray, IntArray, Matrix

UNKNOWN = -1
BATCH = 4096
"""Sets of rows tested together."""
TABLED = 16
"""Codes of at most this many learners have a table of all sets, two to the power of learners."""
BATCHED = 32
"""Codes of at most this many learners are tested in batches of sets; beyond, round by round."""


class Arrivals:
    """Number of arrivals that end a round, for any order; caches the results of small codes.

    Args:
        matrix: C with a row a learner, shape (N, M), or the rows by learner, shape (N, k, M).
        max_variance: Where learners draw samples of their own, the largest mean of
            ``decoded_variances`` that ends a round; inf where decodability is enough.
        target: T, shape (K, M), that the rows must span; by default the identity.
        holders: Learners that must have returned each unit, as ``audit.byzantine`` asks.

    >>> arrivals = Arrivals(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]]))
    >>> arrivals.needed(np.array([[0, 1, 2], [2, 0, 1]]))
    array([3, 2])
    """

    def __init__(
        self,
        matrix: Matrix,
        max_variance: float = math.inf,
        target: Matrix | None = None,
        *,
        holders: int = 1,
    ) -> None:
        self._holders = holders
        self._blocks = _blocks_of(matrix)
        _, per_learner, units = self._blocks.shape
        rank = units if target is None else rank_of(target)
        self._target = target if rank < units else None
        self._least = math.ceil(rank / per_learner)
        self._max_variance = max_variance
        tabled = len(matrix) <= TABLED
        self._table = np.full(2 ** len(matrix), UNKNOWN, np.int8) if tabled else None

    def needed(self, orders: IntArray) -> IntArray:
        """Number of arrivals that end each of K rounds, shape (K,).

        A round ends when C_J spans T, each unit has its holders and the variance is within the
        limit, or with its last row.

        Args:
            orders: Learners in order of arrival, shape (K, N') with N' <= N.

        Raises:
            NotDecodable: All rows together do not suffice.
        """
        if len(self._blocks) > BATCHED:
            limit = self._max_variance
            return np.array(
                [
                    needed_of(self._blocks, order, limit, self._target, holders=self._holders)
                    for order in orders
                ]
            )
        sets = np.cumsum(1 << orders, axis=1)
        every = np.arange(len(orders))
        below = np.full(len(orders), self._least - 1)
        least = np.full(len(orders), orders.shape[1])
        if not self._determines(self._rows_of(np.unique(sets[:, -1]))).all():
            raise NotDecodable(
                f"the rows of all {orders.shape[1]} learners do not determine the code's target"
            )
        while (below + 1 < least).any():
            middle = (below + least) // 2
            enough = self._suffices(sets[every, middle - 1]) & (middle > below)
            least = np.where(enough, middle, least)
            below = np.where(enough, below, middle)
        return least

    def _suffices(self, sets: IntArray) -> BoolArray:
        """Test sets of learners, given as the bits of a number."""
        table = self._table
        if table is None:
            distinct, index = np.unique(sets, return_inverse=True)
            return self._tested(distinct)[index]
        new = np.unique(sets[table[sets] == UNKNOWN])
        table[new] = self._tested(new)
        return np.asarray(table[sets] == 1)

    def _tested(self, sets: IntArray) -> BoolArray:
        holds = self._determines if math.isinf(self._max_variance) else self._variance_ok
        batches = np.split(sets, range(BATCH, len(sets), BATCH))
        return np.concatenate([self._ends(holds, self._rows_of(batch)) for batch in batches])

    def _ends(self, holds: Callable[[Matrix], BoolArray], rows: Matrix) -> BoolArray:
        if self._holders == 1:
            return holds(rows)
        return np.asarray(holds(rows) & self._borne_out(rows))

    def _rows_of(self, sets: IntArray) -> Matrix:
        """C with zeros for the learners outside each of n sets, shape (n, R, M)."""
        members = (sets[:, None] >> np.arange(len(self._blocks))) & 1
        learners, per_learner, units = self._blocks.shape
        rows = members[..., None, None] * self._blocks
        return np.asarray(rows.reshape(len(sets), learners * per_learner, units))

    def _determines(self, rows: Matrix) -> BoolArray:
        return determines(rows, self._target)

    def _borne_out(self, rows: Matrix) -> BoolArray:
        learners, per_learner, units = self._blocks.shape
        held = rows.reshape(len(rows), learners, per_learner, units).any(axis=2).sum(axis=1)
        return np.asarray((held >= self._holders).all(axis=1))

    def _variance_ok(self, rows: Matrix) -> BoolArray:
        return variance_ok(
            decoded_variances(rows, target=self._target).mean(axis=-1), self._max_variance
        )


@lru_cache(maxsize=128)
def arrivals_of(code: Code, max_variance: float, holders: int = 1) -> Arrivals:
    """The cached ``Arrivals`` of a code's rows."""
    return Arrivals(code.blocks, max_variance, code.target, holders=holders)


def needed_of(
    matrix: Matrix,
    order: IntArray,
    max_variance: float,
    target: Matrix | None = None,
    *,
    holders: int = 1,
) -> int:
    """``Arrivals.needed`` of one round, by bisection: further rows never add variance.

    Raises:
        NotDecodable: All rows together do not suffice.
    """
    first = decodable_after(matrix, order, target)
    blocks = _blocks_of(matrix)[order]
    if holders > 1:
        held = np.cumsum(blocks.any(axis=1), axis=0).min(axis=1)
        first = max(first, min(len(order), int(np.searchsorted(held, holders)) + 1))
    if math.isinf(max_variance):
        return first
    counts = range(first, len(order))

    def low(count: int) -> bool:
        rows = blocks[:count].reshape(-1, matrix.shape[-1])
        return bool(variance_ok(decoded_variances(rows, target=target).mean(), max_variance))

    return first + bisect_left(counts, True, key=low)


def _blocks_of(matrix: Matrix) -> Matrix:
    """The rows by learner, shape (N, k, M); of a matrix, each row is a learner's."""
    return matrix.reshape(len(matrix), -1, matrix.shape[-1])


def decodable_after(matrix: Matrix, order: IntArray, target: Matrix | None = None) -> int:
    """Number of learners, in ``order``, whose rows span T; by default, rank(C_J) = M.

    ``Round`` becomes decodable at this number. It is found by bisection, since elimination row by
    row takes seconds a round at a thousand units. The structural rank, an upper bound from the
    non-zeros alone, is much cheaper and goes first.

    Raises:
        NotDecodable: All rows together do not suffice.
    """
    per_learner, units = _blocks_of(matrix).shape[1:]
    rows, most = _blocks_of(matrix)[order].reshape(-1, units), len(order)
    if target is not None:
        return _first(1, most, lambda count: bool(determines(rows[: count * per_learner], target)))
    from scipy.sparse import csr_array  # large, and needed by plans only
    from scipy.sparse.csgraph import structural_rank

    support = csr_array(rows)
    allowed = _first(
        math.ceil(units / per_learner),
        most,
        lambda count: structural_rank(support[: count * per_learner]) == units,
    )
    return _first(allowed, most, lambda count: _full_rank(rows[: count * per_learner]))


def _first(least: int, most: int, holds: Callable[[int], bool]) -> int:
    """The least count in [least, most] at which a monotone property holds."""
    failed, count, stride = least - 1, least, 1
    while count > most or not holds(count):
        if count >= most:
            raise NotDecodable(
                f"the rows of all {most} learners do not determine the code's target"
            )
        failed, count, stride = count, min(count + stride, most), 2 * stride
    untried = range(failed + 1, count)
    return untried.start + bisect_left(untried, True, key=holds)


def _full_rank(submatrix: Matrix) -> bool:
    """True if the columns of C_J are independent; units that a row holds alone are peeled first."""
    rest = submatrix
    while (alone := np.count_nonzero(rest, axis=1) == 1).any():
        rest = rest[~alone][:, ~(rest[alone] != 0).any(axis=0)]
    if rest.shape[0] < rest.shape[1]:
        return False
    diagonal = np.abs(np.diag(np.linalg.qr(rest, mode="r")))
    return bool((diagonal > DEPENDENT * np.linalg.norm(rest, axis=0)).all())
