"""Table V of [DARL1N] by Monte Carlo: overhead, success rates under stragglers, and V.

Random matrices are drawn anew for every trial, so that the numbers describe the scheme and not one
matrix.
"""

from dataclasses import asdict
from functools import partial

import numpy as np

from fullrank.codes import Code
from fullrank.codes.analysis import Probability, computation_overhead, variance
from fullrank.codes.conditions import random_patterns
from fullrank.common.types import JSON, BoolArray, IntArray
from fullrank_reproduction.cells import Cell
from fullrank_reproduction.darl1n.published import LEARNERS, RATES, RECEIVED, Scheme
from fullrank_reproduction.darl1n.straggler_models import StragglerModel

LEAST_SETS = 30
"""Least number of decodable sets for a mean."""


def cell(scheme: Scheme, *, trials: int, sets: int) -> Cell:
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
    variances = np.array([variance(codes[trial], patterns[trial].tolist()) for trial in chosen])
    error = variances.std(ddof=1) / len(variances) ** 0.5
    return {"mean": variances.mean(), "standard_error": error, "sets": len(variances)}


def _members(patterns: IntArray) -> BoolArray:
    """Sets of rows as masks, shape (trials, R)."""
    members = np.zeros((len(patterns), LEARNERS), dtype=np.bool_)
    np.put_along_axis(members, patterns, values=True, axis=1)
    return members
