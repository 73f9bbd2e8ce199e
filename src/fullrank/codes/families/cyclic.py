"""Cyclic windows: a chosen tolerance at the least possible load."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import gcd
from typing import Any

import numpy as np

from fullrank.codes.base import Code, CodeFamily, Tolerance, dyadic, register, require_enough_rows
from fullrank.codes.conditions import (
    ALL_PATTERNS,
    conditions,
    count_patterns,
    loss_patterns,
)
from fullrank.codes.families.mds import harmonic
from fullrank.common.errors import CodeError
from fullrank.common.seeding import stream
from fullrank.common.types import IntArray, Matrix

RANDOM_CANDIDATES = 24
SCORING_WORK = 1e8
"""Multiplications spent on scoring candidates where no table exists: about a second."""

HARMONIC_ROWS = 128
"""Above, harmonic codewords on short windows are too ill conditioned to be worth scoring."""


@register("cyclic")
@dataclass(frozen=True, slots=True, kw_only=True)
class Cyclic(CodeFamily):
    """Unit i on the s + 1 consecutive rows floor(i R / M) + t mod R, t = 0..s.

    To survive any s losses a unit must sit on at least s + 1 rows, so M (s + 1) / R units a row is
    the floor of the mean load; this code reaches it, and no row carries more than
    ceil(M (s + 1) / R). Every set of windows meets Hall's condition in any R - s rows, so generic
    coefficients give rank M after any s losses. ``tolerance = R - M`` is a sparse MDS code.

    Rows of one unit have the coefficient 1 (docs/adr/0120-lone-units.md). The others are the best,
    by worst condition over loss patterns, of

    (a) signs times U(0.5, 1.5), several draws;
    (b) codewords of the harmonic [R, R - s] code supported on the windows, at every stride coprime
        to R: columns of C are independent words of an MDS code, which any s erasures leave intact;
    (c) descent on the worst ||C_J^+|| from the best of (a), shipped as tables for common sizes
        (tools/cyclic_tables.py); the seed then has no effect.

    Worst condition over all losses at (R, M) = (15, 8), s = 1, 2, 3, 7: 2.4, 3.4, 5.5, 1371; at
    (64, 32), s = 16 over sampled ones: 8. Prefer s < R - M where R is large, since conditions grow
    with s.

    Properties:
        Tolerance: s.
        Load: ceil(M (s + 1) / R) at most, M (s + 1) / R on average.
        Exists: R >= M + s and s >= 0.

    Args:
        tolerance: s, lost learners that never matter; 0 <= s < N.

    >>> code = Cyclic(tolerance=7).build(rows=15, units=8, seed=0)
    >>> code.tolerance, code.certificate, int(code.load.max())
    (7, 'exhaustive', 5)
    >>> (Cyclic().build(rows=4, units=3, seed=0).matrix != 0).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1],
           [0, 0, 1]])
    """

    tolerance: int = 1

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise CodeError(f"cyclic needs tolerance >= 0: {self.tolerance}")

    def rows_for(self, units: int) -> int:
        """M + s rows."""
        return units + self.tolerance

    @classmethod
    def tolerating(cls, losses: int) -> dict[str, Any]:
        """Return the field ``tolerance``."""
        return {"tolerance": losses}

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Take the code from a table, else search for the best candidate."""
        require_enough_rows("cyclic", rows=rows, units=units, tolerance=self.tolerance)
        matrix, checked = shipped(rows, units, self.tolerance), ALL_PATTERNS
        if matrix is None:
            matrix, checked = best_searched(rows, units, self.tolerance, seed=seed)
        every = count_patterns(rows, self.tolerance) <= checked
        return Code(
            name="cyclic",
            matrix=matrix,
            known_tolerance=Tolerance(self.tolerance, "exhaustive" if every else "generic"),
        )


def windows(rows: int, units: int, tolerance: int) -> IntArray:
    """Rows that hold each unit, shape (M, s + 1).

    >>> windows(4, 3, 1).tolist()
    [[0, 1], [1, 2], [2, 3]]
    """
    start = np.arange(units) * rows // units
    return (start[:, None] + np.arange(tolerance + 1)) % rows


def place(coefficients: Matrix, rows: int) -> Matrix:
    """C of shape (R, M) from the coefficients on the windows, shape (M, s + 1).

    A row of one unit holds it with 1, whatever the coefficient: its vector is the update as it is.
    """
    units, width = coefficients.shape
    matrix = np.zeros((rows, units))
    matrix[windows(rows, units, width - 1), np.arange(units)[:, None]] = coefficients
    alone = np.count_nonzero(matrix, axis=1) == 1
    matrix[alone] = matrix[alone] != 0.0
    return matrix


def random_coefficients(units: int, tolerance: int, *, seed: int, index: int) -> Matrix:
    """Candidate (a): random signs times U(0.5, 1.5), shape (M, s + 1)."""
    generator = stream(seed, "cyclic_random", index)
    sign = generator.choice([-1.0, 1.0], size=(units, tolerance + 1))
    return np.asarray(sign * generator.uniform(0.5, 1.5, size=sign.shape))


def harmonic_coefficients(rows: int, units: int, tolerance: int, *, stride: int) -> Matrix:
    """Candidate (b): the harmonic codeword on each window, row r at position ``stride`` r mod R.

    The word on the first window spans the null space of the code's rows outside it. The others are
    its shifts; with half-integer frequencies (even R - s) a shift changes sign when it wraps.
    """
    offset = np.arange(tolerance + 1) * stride
    outside = np.delete(harmonic(rows, rows - tolerance), offset % rows, axis=0)
    null = np.linalg.svd(outside)[2][-1]
    word = harmonic(rows, rows - tolerance)[offset % rows] @ null
    start = (np.arange(units) * rows // units)[:, None] * stride
    wraps = offset // rows + (start + offset) // rows
    antiperiodic = (rows - tolerance) % 2 == 0
    sign = np.where(antiperiodic & (wraps % 2 == 1), -1.0, 1.0)
    return np.asarray(sign * word / np.abs(word).max())


def candidates(rows: int, units: int, tolerance: int, *, seed: int, draws: int) -> list[Matrix]:
    """Exactly encodable matrices of (a) and (b), each of shape (R, M)."""
    drawn = [
        random_coefficients(units, tolerance, seed=seed, index=index) for index in range(draws)
    ]
    if rows <= HARMONIC_ROWS and tolerance > 0:
        strides = [stride for stride in range(1, rows // 2 + 1) if gcd(stride, rows) == 1]
        drawn += [
            harmonic_coefficients(rows, units, tolerance, stride=stride) for stride in strides
        ]
    return [dyadic(place(coefficients, rows)) for coefficients in drawn]


def best_searched(rows: int, units: int, tolerance: int, *, seed: int) -> tuple[Matrix, int]:
    """The candidate of least worst condition, and how many loss patterns scored it."""
    if tolerance == 0:
        return place(np.ones((units, 1)), rows), ALL_PATTERNS
    cost = rows * units**2
    draws = int(np.clip(SCORING_WORK / (50 * cost), 1, RANDOM_CANDIDATES))
    matrices = candidates(rows, units, tolerance, seed=seed, draws=draws)
    limit = int(np.clip(SCORING_WORK / (len(matrices) * cost), 4, ALL_PATTERNS))
    patterns = loss_patterns(rows, tolerance, limit=limit, seed=seed)
    return min(matrices, key=lambda matrix: score(matrix, patterns)), limit


def score(matrix: Matrix, patterns: IntArray) -> tuple[float, float]:
    """(worst, 99th percentile) of the condition over loss patterns; less is better."""
    values = conditions(matrix, patterns)
    return float(values.max()), float(np.quantile(values, 0.99, method="higher"))


@cache
def _tables() -> dict[tuple[int, int, int], Matrix]:
    """Shipped coefficients by (R, M, s), each of shape (M, s + 1)."""
    data = json.loads(files("fullrank.codes.families").joinpath("cyclic_tables.json").read_text())
    return {
        (table["rows"], table["units"], table["tolerance"]): np.ldexp(
            np.array(table["coefficients"], dtype=np.float64), table["exponent"]
        )
        for table in data
    }


def shipped(rows: int, units: int, tolerance: int) -> Matrix | None:
    """C from the shipped table of these sizes, if there is one."""
    coefficients = _tables().get((rows, units, tolerance))
    return None if coefficients is None else place(coefficients, rows)
