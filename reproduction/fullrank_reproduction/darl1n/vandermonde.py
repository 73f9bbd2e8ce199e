"""V of a Vandermonde matrix in rational arithmetic, since its condition exceeds float64.

The nodes are those of the authors' earlier code [Wang21]; those of [DARL1N] are not known.
"""

import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from fullrank.codes.conditions import random_patterns
from fullrank.common.types import JSON, Matrix
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.darl1n.published import LEARNERS, RECEIVED, Scheme

VANDERMONDE = Scheme(code="vandermonde")


def cell(*, sets: int) -> Cell:
    """Average V over the given number of random sets J of each size."""
    return Cell(
        name=f"exact-{VANDERMONDE.name}",
        settings={"received": list(RECEIVED), "sets": sets},
        compute=partial(_averages, sets),
        beside=True,
    )


def _averages(sets: int) -> JSON:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reason for rational arithmetic
        matrix = VANDERMONDE.make_code().matrix
    return {"variance": [_average(matrix, received, sets) for received in RECEIVED]}


def _average(matrix: Matrix, received: int, sets: int) -> JSON:
    patterns = random_patterns(LEARNERS, LEARNERS - received, samples=sets, seed=0)
    variances = np.array([exact_variance(matrix[rows]) for rows in patterns])
    return {
        "mean": variances.mean(),
        "standard_error": variances.std(ddof=1) / sets**0.5,
        "sets": sets,
    }


def exact_variance(rows: Matrix) -> float:
    """V = ln det(C^T E C) - 2 ln det(C^T C), E = diag(|row|^2) [DARL1N, eq. 16].

    Equals ``fullrank.codes.analysis.variance`` without rounding errors; a thousand times slower.

    Args:
        rows: C_J of rank M, shape (J, M).
    """
    exact = [[Fraction(entry) for entry in row] for row in rows.tolist()]
    plain, noisy = [Fraction(1)] * len(exact), [sum(x * x for x in row) for row in exact]
    return _log_determinant(_gram(exact, noisy)) - 2.0 * _log_determinant(_gram(exact, plain))


def _gram(
    rows: Sequence[Sequence[Fraction]], weights: Sequence[Fraction | int]
) -> list[list[Fraction]]:
    """C^T diag(weights) C."""
    columns = list(zip(*rows, strict=True))
    weighted = [[w * x for w, x in zip(weights, column, strict=True)] for column in columns]
    return [
        [sum((x * y for x, y in zip(left, right, strict=True)), Fraction(0)) for right in columns]
        for left in weighted
    ]


def _log_determinant(matrix: list[list[Fraction]]) -> float:
    """Logarithm of a determinant by elimination; positive definite, so no pivot is zero."""
    rest, total = matrix, 0.0
    while rest:
        (pivot, *first), *others = rest
        total += math.log(pivot.numerator) - math.log(pivot.denominator)
        rest = [
            [x - row[0] / pivot * y for x, y in zip(row[1:], first, strict=True)] for row in others
        ]
    return total
