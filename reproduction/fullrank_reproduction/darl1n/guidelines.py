"""The guidelines of [DARL1N, Sec. VI-B3], judged by Table V, Fig. 7 and Table VI as they are here.

Success rates are those of Table V, variances V those of the rows at the commit, Delta = 1 s.
"""

import math
from itertools import product

import numpy as np

from fullrank.common.types import Array
from fullrank_reproduction.claim_results import PRINTED, ClaimResult, judge
from fullrank_reproduction.darl1n.claims_table import DRAWN, ERRORS
from fullrank_reproduction.darl1n.claims_times import LATE, VIRTUAL
from fullrank_reproduction.darl1n.published import (
    DELAYS_S,
    LDGM,
    MDS,
    RATES,
    REPETITION,
    REWARD,
    SPARSE,
    TIMED,
    UNCODED,
    VARIANCE,
    Scheme,
)
from fullrank_reproduction.darl1n.results import Results, seconds, success
from fullrank_reproduction.darl1n.straggler_models import StragglerModel
from fullrank_reproduction.darl1n.times import point

SLACK = 1.01
"""Factor within which two times count as equal."""
CLEAR = -0.5
"""Rank correlation of V and reward from which V counts as what decides."""


def judge_guidelines(results: Results) -> list[ClaimResult]:
    """One claim for each guideline, and for the observation that they rest on."""
    correlation = ranks_agree(
        [value for scheme in TIMED for value in VARIANCE[scheme.name]],
        [value for scheme in TIMED for value in REWARD[scheme.name]],
    )
    return [
        judge(
            "For stable systems Uncoded: no scheme is quicker without stragglers.",
            [
                f"{scheme.name} {_calm(results, scheme):.2f} s, uncoded "
                f"{_calm(results, UNCODED):.2f} s"
                for scheme in TIMED
                if SLACK * _calm(results, scheme) < _calm(results, UNCODED)
            ],
            grounds=f"{_calm(results, UNCODED):.2f} s an iteration",
            strength=VIRTUAL,
        ),
        judge(
            "For stable systems Uncoded: no scheme has a lower variance without stragglers.",
            [
                f"{scheme.name} {_variance(results, scheme, 0.0):.2f}"
                for scheme in TIMED
                if _variance(results, scheme, 0.0) < _variance(results, UNCODED, 0.0) - 0.01
            ],
            grounds="V = 0",
            strength=VIRTUAL,
        ),
        judge(
            "For quality among stragglers Repetition: no scheme has a lower variance.",
            [
                f"{scheme.name} at eta = {rate}"
                for scheme, rate in product(TIMED, LATE)
                if _variance(results, scheme, rate) < _variance(results, REPETITION, rate)
            ],
            grounds=", ".join(f"{_variance(results, REPETITION, rate):.2f}" for rate in LATE),
            strength=VIRTUAL,
        ),
        judge(
            "For resilience Random Sparse: only MDS, which is too noisy, survives more.",
            list(_survive_more(results)),
            grounds="of the timed schemes, with either kind of stragglers",
            strength=DRAWN,
        ),
        judge(
            "For both LDGM: its variance and its success lie between those of the two.",
            list(_outside(results)),
            grounds="at both rates, with either kind of stragglers",
            strength=DRAWN,
        ),
        judge(
            "A larger V generally leads to a lower reward.",
            [] if correlation <= CLEAR else [f"rank correlation {correlation:+.2f}"],
            grounds=f"rank correlation {correlation:+.2f} over the 15 cells of Table VI",
            strength=PRINTED,
        ),
    ]


def ranks_agree(first: list[float], second: list[float]) -> float:
    """Spearman's rank correlation."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: list[float]) -> Array:
    """Ranks, equal values sharing their mean rank."""
    array = np.array(values)
    ranks: Array = (array[:, None] > array).sum(axis=1) + (array[:, None] == array).sum(axis=1) / 2
    return ranks


def _calm(results: Results, scheme: Scheme) -> float:
    """Seconds of an iteration without stragglers."""
    return seconds(results, scheme, StragglerModel.BERNOULLI, DELAYS_S[0], RATES[0])


def _variance(results: Results, scheme: Scheme, rate: float) -> float:
    """V at the commit, independent stragglers."""
    entry = results[f"times-{scheme.name}"][point(StragglerModel.BERNOULLI, DELAYS_S[0], rate)]
    return float(entry["variance"])


def _less(results: Results, one: Scheme, other: Scheme, model: StragglerModel, rate: float) -> bool:
    """Whether one scheme succeeds less often than another, beyond ``ERRORS``."""
    low, high = (success(results, scheme, model, rate) for scheme in (one, other))
    error = math.hypot(low["standard_error"], high["standard_error"])
    return bool(low["value"] < high["value"] - ERRORS * error)


def _survive_more(results: Results) -> list[str]:
    sparse = SPARSE[2]
    return [
        f"{scheme.name} at eta = {rate} ({model})"
        for scheme, model, rate in product(TIMED, StragglerModel, LATE)
        if scheme not in (MDS, sparse) and _less(results, sparse, scheme, model, rate)
    ]


def _outside(results: Results) -> list[str]:
    ldgm, sparse = LDGM[1], SPARSE[2]
    noisy = [
        f"V at eta = {rate}"
        for rate in LATE
        if not _variance(results, REPETITION, rate)
        <= _variance(results, ldgm, rate)
        <= _variance(results, sparse, rate)
    ]
    frail = [
        f"success at eta = {rate} ({model})"
        for model, rate in product(StragglerModel, LATE)
        if _less(results, ldgm, REPETITION, model, rate)
        or _less(results, sparse, ldgm, model, rate)
    ]
    return noisy + frail
