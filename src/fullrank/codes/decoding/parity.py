"""Parity checks: equations that honest vectors satisfy for any updates, exact or not.

With N an orthonormal basis of the left null space of C_J, shape (n, n - M), honest vectors have
N^T Y = 0 up to rounding, however ill conditioned C_J is. An error in row j alone shows iff row j of
N is not zero, which is rank(C_{J without j}) = M; it cannot be mistaken for one in row k iff their
rows of N are not parallel, which is rank(C_{J without j, k}) = M. Where decoding is not exact this
is all the audit that vectors have; digests say nothing about them then.
"""

from collections.abc import Iterable

import numpy as np

from fullrank.common.types import BoolArray, Matrix

INDEPENDENT = 1e-6
"""Rows of N below this norm, or with this sine between them, count as zero, or as parallel."""

MARGIN = 10.0
"""A threshold lies so far above the largest residual of clean rounds."""

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


def calibrated(clean: Iterable[float]) -> float:
    """The threshold from the residuals of rounds that were clean, at least that of float64.

    >>> calibrated([3e-8, 1e-8])
    3e-07
    """
    return max(FLOAT64, MARGIN * max(clean, default=0.0))


def culprit(rows: Matrix, coded: Matrix, *, threshold: float) -> int | None:
    """The one row without which the residual vanishes; None if it is small or the row uncertain.

    Args:
        rows: C_J, shape (n, M).
        coded: Y, shape (n, P).
        threshold: From ``calibrated``.
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
