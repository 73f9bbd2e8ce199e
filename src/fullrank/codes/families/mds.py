"""Maximum distance separable: any M of R rows decode."""

from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code, CodeFamily, Tolerance, dyadic, register, require_enough_rows
from fullrank.codes.conditions import loss_patterns, worst_condition
from fullrank.common.errors import CodeError
from fullrank.common.seeding import stream
from fullrank.common.types import Matrix

HARMONIC_ROWS = 16
"""Above, random orthonormal frames have better worst conditions than the harmonic one."""

SAMPLED_PATTERNS = 200
SCORING_WORK = 2e8
"""Frames are drawn and scored until about this many multiplications are spent."""


@register("mds")
@dataclass(frozen=True, slots=True, kw_only=True)
class MDS(CodeFamily):
    """Dense rows of which any M are independent.

    For R <= 16 the harmonic frame (real DFT): entries sqrt(2/R) cos(2 pi f j / R) and
    sqrt(2/R) sin(2 pi f j / R) at the frequencies f = 0, 1 .. (M-1)/2 for odd M and
    1/2, 3/2 .. (M-1)/2 for even M. Any M rows are independent because a trigonometric polynomial
    with these frequencies has fewer than M zeros. Worst condition over all subsets (R=15): 611
    for M=8, 321 for M=10, against 1e12 for ``vandermonde``.

    Above, R x M Gaussian matrices are orthonormalised (any M rows are independent with
    probability 1) and the one with the best worst condition over sampled losses is kept.

    Differs from [Wang21, section III-C] in: no Vandermonde matrix; coefficients are rounded so
    that encoding is exact (``base.dyadic``).

    Properties:
        Tolerance: R - M.
        Load: M in every row, fewer where a coefficient is 0.
        Exists: R >= M.

    Args:
        frames: K, candidates above R = 16.

    >>> code = MDS().build(rows=4, units=3, seed=0)
    >>> code.tolerance, code.certificate
    (1, 'exhaustive')
    """

    frames: int = 16

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise CodeError(f"mds needs frames >= 1: {self.frames}")

    def rows_for(self, units: int) -> int:
        """M + 1, which survive one loss."""
        return units + 1

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Harmonic or best random frame."""
        require_enough_rows("mds", rows=rows, units=units)
        small = rows <= HARMONIC_ROWS
        matrix = harmonic(rows, units) if small else self._best_frame(rows, units, seed)
        return Code(
            name="mds",
            matrix=dyadic(matrix),
            known_tolerance=Tolerance(rows - units, "exhaustive" if small else "generic"),
        )

    def _best_frame(self, rows: int, units: int, seed: int) -> Matrix:
        patterns = loss_patterns(rows, rows - units, limit=SAMPLED_PATTERNS, seed=seed)
        affordable = int(SCORING_WORK / (rows * units**2 + len(patterns) * units**3))
        candidates = [
            _orthonormal(rows, units, seed, index)
            for index in range(max(1, min(self.frames, affordable)))
        ]
        if len(candidates) == 1:
            return candidates[0]
        return min(candidates, key=lambda frame: worst_condition(frame, patterns))


def harmonic(rows: int, units: int) -> Matrix:
    """The real DFT frame: orthonormal columns, any M rows independent, shape (R, M)."""
    offset = 0.5 if units % 2 == 0 else 0.0
    frequency = np.arange(1, units // 2 + 1) - offset
    angle = 2.0 * np.pi * np.arange(rows)[:, None] * frequency / rows
    constant = np.full((rows, units % 2), np.sqrt(0.5))
    frame = np.hstack([constant, np.cos(angle), np.sin(angle)])
    return np.asarray(frame * np.sqrt(2.0 / rows))


def _orthonormal(rows: int, units: int, seed: int, index: int) -> Matrix:
    gaussian = stream(seed, "mds_frame", index).standard_normal((rows, units))
    frame, triangle = np.linalg.qr(gaussian)
    return np.asarray(frame * np.where(np.diag(triangle) < 0.0, -1.0, 1.0))
