"""Codes for independent samples: Table V of [DARL1N] by Monte Carlo, and the noise of decoding.

*Table V*: overhead, success rates under stragglers, and V. Random matrices are drawn anew for every
trial, so that the numbers describe the scheme and not one matrix. V of a Vandermonde matrix takes
rational arithmetic, since its condition exceeds float64; its nodes are those of the authors'
earlier code [Wang21], since those of [DARL1N] are not known.

*Noise*: the mean variance of decoded gradients against |J|, in units of the variance of one
learner's own gradient, decoded by generalised least squares over all rows received. M / |J| is a
lower bound for all codes.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from functools import partial

import numpy as np

from fullrank.codes import Code
from fullrank.codes.analysis import (
    Probability,
    computation_overhead,
    decoded_variances,
    least_mean_variance,
)
from fullrank.codes.analysis import variance as variance_of
from fullrank.codes.conditions import conditions, random_patterns
from fullrank.codes.families.mds import harmonic
from fullrank.common.types import JSON, BoolArray, IntArray, Matrix
from fullrank_darl1n.published import (
    AGENTS,
    CYCLIC,
    LDGM,
    LEARNERS,
    MDS,
    RATES,
    RECEIVED,
    REPETITION,
    SPARSE,
    VANDERMONDE,
    Scheme,
    StragglerModel,
)
from fullrank_papers.cells import Cell, Results

LEAST_SETS = 30
"""Least number of decodable sets for a mean."""
SIZES = tuple(range(AGENTS, LEARNERS + 1))
"""Numbers of received rows |J|."""
QUANTILES = (0.1, 0.5, 0.9)
NOISY = (REPETITION, LDGM[1], CYCLIC, SPARSE[2], MDS)
HARMONIC = "harmonic"
"""The real DFT frame, which ``mds`` equals up to 16 rows."""
CODES = (*(scheme.name for scheme in NOISY), HARMONIC)
DENSE = (SPARSE[2].name, MDS.name, HARMONIC)


def table_cell(scheme: Scheme, *, trials: int, sets: int) -> Cell:
    """The scheme's row of the table.

    Args:
        scheme: The scheme.
        trials: Trials of each probability.
        sets: Largest number of decodable sets J behind each average V.
    """
    return Cell(
        name=f"table-v-{scheme.name}",
        settings={
            "scheme": {"code": scheme.code, "params": dict(scheme.params)},
            "trials": trials,
            "sets": sets,
            "rates": list(RATES),
            "received": list(RECEIVED),
        },
        compute=partial(_row, scheme, trials, sets),
        beside=True,
    )


def _row(scheme: Scheme, trials: int, sets: int) -> JSON:
    codes = [scheme.make_code(seed) for seed in range(trials if scheme.drawn else 1)]
    codes = codes if scheme.drawn else codes * trials
    return {
        "overhead": np.mean([computation_overhead(code) for code in codes]),
        "success": {
            model: [asdict(_success(codes, model, rate)) for rate in RATES]
            for model in StragglerModel
        },
        "variance": [_average(codes, received, sets) for received in RECEIVED],
    }


def _success(codes: list[Code], model: StragglerModel, rate: float) -> Probability:
    """P(the other learners decode), one trial for each matrix."""
    delays = model.model(rate, delay_s=1.0)
    late = [
        delays.delays(seed=0, iteration=trial, learners=LEARNERS) > 0 for trial in range(len(codes))
    ]
    return _share(_decode(codes, ~np.array(late)))


def _decode(codes: list[Code], received: BoolArray) -> BoolArray:
    """True where the received rows of a matrix have rank M, shape (trials,)."""
    stack = np.array([code.matrix for code in codes])
    return np.asarray(np.linalg.matrix_rank(stack * received[..., None]) == stack.shape[-1])


def _share(decoded: BoolArray) -> Probability:
    value = float(decoded.mean())
    error = (value * (1.0 - value) / len(decoded)) ** 0.5
    return Probability(value=value, standard_error=error)


def _average(codes: list[Code], received: int, sets: int) -> JSON:
    """Average V over random decodable sets of the given size; null if there are too few."""
    patterns = random_patterns(LEARNERS, LEARNERS - received, samples=len(codes), seed=0)
    chosen = np.flatnonzero(_decode(codes, _members(patterns)))[:sets]
    if len(chosen) < LEAST_SETS:
        return {"mean": None, "standard_error": None, "sets": len(chosen)}
    return _mean([variance_of(codes[trial], patterns[trial].tolist()) for trial in chosen])


def _mean(variances: Sequence[float]) -> JSON:
    values = np.array(variances)
    error = values.std(ddof=1) / len(values) ** 0.5
    return {"mean": values.mean(), "standard_error": error, "sets": len(values)}


def _members(patterns: IntArray) -> BoolArray:
    """Sets of rows as masks, shape (trials, R)."""
    members = np.zeros((len(patterns), LEARNERS), dtype=np.bool_)
    np.put_along_axis(members, patterns, values=True, axis=1)
    return members


def exact_cell(*, sets: int) -> Cell:
    """Average V over the given number of random sets J of each size."""
    return Cell(
        name=f"exact-{VANDERMONDE.name}",
        settings={"received": list(RECEIVED), "sets": sets},
        compute=partial(_exact_averages, sets),
        beside=True,
    )


def _exact_averages(sets: int) -> JSON:
    with warnings.catch_warnings(action="ignore"):  # the reason for rational arithmetic
        matrix = VANDERMONDE.make_code().matrix
    return {"variance": [_exact_average(matrix, received, sets) for received in RECEIVED]}


def _exact_average(matrix: Matrix, received: int, sets: int) -> JSON:
    patterns = random_patterns(LEARNERS, LEARNERS - received, samples=sets, seed=0)
    return _mean([exact_variance(matrix[rows]) for rows in patterns])


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


def noise_cells(*, samples: int) -> list[Cell]:
    """One cell for each code; ``samples`` random sets J of each size."""
    return [
        Cell(
            name=f"noise-{name}",
            settings={"code": name, "samples": samples},
            compute=partial(_by_size, name, samples),
            beside=True,
        )
        for name in CODES
    ]


def _by_size(name: str, samples: int) -> JSON:
    made = {scheme.name: scheme for scheme in NOISY}
    matrix = harmonic(LEARNERS, AGENTS) if name == HARMONIC else made[name].make_code().matrix
    return {str(size): _noise(matrix, size, samples) for size in SIZES}


def _noise(matrix: Matrix, size: int, samples: int) -> JSON:
    """Noise over random sets J of the given size; no quantiles where too few sets decode.

    ``least`` is the smallest ratio of a mean variance to the bound.
    """
    patterns = random_patterns(LEARNERS, LEARNERS - size, samples=samples, seed=0)
    means = decoded_variances(matrix[patterns]).mean(axis=-1)
    decoded = np.isfinite(means)
    facts = {"decodable": decoded.mean(), "least": None, "noise": None, "condition": None}
    if decoded.sum() >= LEAST_SETS:
        kappa = conditions(matrix, patterns[decoded])
        facts |= {
            "least": means.min() / least_mean_variance(AGENTS, size),
            "noise": np.quantile(means[decoded], QUANTILES).tolist(),
            "condition": float(np.median(kappa)),
        }
    return facts


def overhead(results: Results, scheme: Scheme) -> float:
    """Mean overhead o_c."""
    return float(results[f"table-v-{scheme.name}"]["overhead"])


def success(results: Results, scheme: Scheme, model: StragglerModel, rate: float) -> JSON:
    """``value`` and ``standard_error``."""
    entry: JSON = results[f"table-v-{scheme.name}"]["success"][model][RATES.index(rate)]
    return entry


def variance(results: Results, scheme: Scheme, received: int) -> tuple[float, float]:
    """Average V and its standard error; NaN if too few sets decode."""
    source = "exact" if scheme is VANDERMONDE else "table-v"
    entry = results[f"{source}-{scheme.name}"]["variance"][RECEIVED.index(received)]
    if entry["mean"] is None:
        return math.nan, math.nan
    return entry["mean"], entry["standard_error"]


def at(results: Results, name: str, size: int) -> JSON:
    """Noise results of a code for a number of received rows."""
    entry: JSON = results[f"noise-{name}"][str(size)]
    return entry
