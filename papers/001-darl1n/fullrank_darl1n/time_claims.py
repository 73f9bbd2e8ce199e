"""The claims of [DARL1N, Sec. VI-B] on times: Fig. 7, Table VI, and the guidelines of VI-B3.

The guidelines are judged by Table V, Fig. 7 and Table VI as they are here. Success rates are those
of Table V, variances V those of the rows at the commit, Delta = 1 s.
"""

from collections.abc import Iterator, Sequence
from itertools import product

from scipy.stats import spearmanr

from fullrank_darl1n.coding import success
from fullrank_darl1n.published import (
    DELAYS_S,
    LATE,
    LDGM,
    MDS,
    RATES,
    REPETITION,
    SPARSE,
    TABLE_VI,
    TIMED,
    UNCODED,
    Scheme,
    StragglerModel,
)
from fullrank_darl1n.table_claims import DRAWN, ERRORS, together
from fullrank_darl1n.times import PaperMachines, point, seconds
from fullrank_papers.cells import Results
from fullrank_papers.claims import CIRCULAR, PRINTED, ClaimResult, judge_each, simulated

FLAT = 1.1
"""Times that differ by less than this factor do not grow."""
SLOWER = 0.95
"""Share of uncoded's growth below which a scheme degrades more slowly."""
NEAR = 0.15
"""Relative tolerance of a predicted convergence time."""
LIGHT, DENSE = (REPETITION, LDGM[1]), (MDS, SPARSE[2])
VIRTUAL = simulated("machines solved from three cells of Table VI")
ALIKE = simulated("equal iterations for all, which the next claim denies")
SLACK = 1.01
"""Factor within which two times count as equal."""
CLEAR = -0.5
"""Rank correlation of V and reward from which V counts as what decides."""


def judge_figure(results: Results, model: StragglerModel) -> list[ClaimResult]:
    """Results for Fig. 7, for one straggler model."""
    wins, pairs = _light_wins(results, model)
    order = {
        "Without stragglers uncoded is fastest, MDS and sparse slowest.": (
            _disordered(results, model),
            "all others lie between",
        )
    }
    rest = {
        "Repetition and LDGM slow down less than uncoded.": (
            _as_fragile(results, model),
            "at both rates and delays",
        ),
        "They are quicker than MDS and sparse in most cases.": (
            [] if 2 * wins > pairs else [f"in {wins} of {pairs} only"],
            f"in {wins} of {pairs}",
        ),
        "MDS and sparse do not grow much as Delta goes from 1 to 4.": (
            _growing(results, model),
            f"by a factor below {FLAT}",
        ),
        "MDS and sparse are quickest where delay and rate are largest.": (
            _quicker_than_dense(results, model),
            f"Delta = {DELAYS_S[-1]:g} s, eta = {LATE[-1]}",
        ),
    }
    return [*judge_each(order, CIRCULAR), *judge_each(rest, VIRTUAL)]


def judge_convergence(results: Results, machines: PaperMachines) -> list[ClaimResult]:
    """Results for Table VI, with independent stragglers."""
    first = "LDGM converges first where there are stragglers, if all need the same iterations."
    same = "All schemes need the same number of iterations to converge."
    grounds = f"{machines.iterations:.0f}; all times within {NEAR:.0%}"
    return [
        *judge_each({first: (_before_ldgm(results), "at both rates")}, ALIKE),
        *judge_each({same: (_elsewhere(results, machines), grounds)}, VIRTUAL, ours=(same,)),
    ]


def _disordered(results: Results, model: StragglerModel) -> Iterator[str]:
    calm = {scheme.name: seconds(results, scheme, model, DELAYS_S[0], 0.0) for scheme in TIMED}
    if calm[UNCODED.name] > min(calm.values()) * 1.01:
        yield f"uncoded takes {calm[UNCODED.name]:.2f} s of {min(calm.values()):.2f} s"
    quickest = min(calm[scheme.name] for scheme in DENSE)
    for scheme in LIGHT:
        if calm[scheme.name] > quickest:
            yield f"{scheme.name} takes {calm[scheme.name]:.2f} s"


def _growth(
    results: Results, scheme: Scheme, model: StragglerModel, delay_s: float, rate: float
) -> float:
    calm = seconds(results, scheme, model, delay_s, 0.0)
    return seconds(results, scheme, model, delay_s, rate) - calm


def _as_fragile(results: Results, model: StragglerModel) -> Iterator[str]:
    for scheme, delay_s, rate in product(LIGHT, DELAYS_S, LATE):
        share = _growth(results, scheme, model, delay_s, rate) / _growth(
            results, UNCODED, model, delay_s, rate
        )
        if share > SLOWER:
            yield f"{scheme.name} at eta = {rate}, Delta = {delay_s:g}: {share:.0%} of its growth"


def _light_wins(results: Results, model: StragglerModel) -> tuple[int, int]:
    """Number of comparisons with stragglers that repetition and LDGM win, and of all of them."""
    outcomes = [
        seconds(results, light, model, *case) < seconds(results, dense, model, *case)
        for light, dense in product(LIGHT, DENSE)
        for case in product(DELAYS_S, LATE)
    ]
    return sum(outcomes), len(outcomes)


def _growing(results: Results, model: StragglerModel) -> Iterator[str]:
    for scheme, rate in product(DENSE, LATE):
        short, long = (seconds(results, scheme, model, delay, rate) for delay in DELAYS_S)
        if long > FLAT * short:
            yield f"{scheme.name} at eta = {rate}: from {short:.2f} to {long:.2f} s"


def _quicker_than_dense(results: Results, model: StragglerModel) -> Iterator[str]:
    slowest = max(_hardest(results, DENSE, model))
    for scheme, taken in zip(TIMED, _hardest(results, TIMED, model), strict=True):
        if scheme not in DENSE and taken < slowest:
            yield f"{scheme.name} takes {taken:.2f} s, they {slowest:.2f} s"


def _hardest(results: Results, schemes: Sequence[Scheme], model: StragglerModel) -> list[float]:
    return [seconds(results, scheme, model, DELAYS_S[-1], LATE[-1]) for scheme in schemes]


def _before_ldgm(results: Results) -> Iterator[str]:
    for rate in LATE:
        times = {
            scheme.name: seconds(results, scheme, StragglerModel.BERNOULLI, DELAYS_S[0], rate)
            for scheme in TIMED
        }
        first = min(times, key=times.__getitem__)
        if first != LDGM[1].name:
            yield f"at eta = {rate} {first} does"


def _elsewhere(results: Results, machines: PaperMachines) -> Iterator[str]:
    for scheme in TIMED:
        for rate, said in zip(RATES, TABLE_VI[scheme.name].seconds, strict=True):
            iteration_s = seconds(results, scheme, StragglerModel.BERNOULLI, DELAYS_S[0], rate)
            ratio = said / (machines.iterations * iteration_s)
            if abs(ratio - 1.0) > NEAR:
                yield f"{scheme.name} at eta = {rate}: {ratio:.2f} times as many"


def judge_guidelines(results: Results) -> list[ClaimResult]:
    """One claim for each guideline, and for the observation that they rest on."""
    rows = [TABLE_VI[scheme.name] for scheme in TIMED]
    correlation = spearmanr(
        [value for row in rows for value in row.variance],
        [value for row in rows for value in row.reward],
    ).statistic
    calm, quiet = _calm(results, UNCODED), _variance(results, UNCODED, 0.0)
    said = f"rank correlation {correlation:+.2f}"
    virtual = {
        "For stable systems Uncoded: no scheme is quicker without stragglers.": (
            (
                f"{scheme.name} {_calm(results, scheme):.2f} s, uncoded {calm:.2f} s"
                for scheme in TIMED
                if SLACK * _calm(results, scheme) < calm
            ),
            f"{calm:.2f} s an iteration",
        ),
        "For stable systems Uncoded: no scheme has a lower variance without stragglers.": (
            (
                f"{scheme.name} {_variance(results, scheme, 0.0):.2f}"
                for scheme in TIMED
                if _variance(results, scheme, 0.0) < quiet - 0.01
            ),
            "V = 0",
        ),
        "For quality among stragglers Repetition: no scheme has a lower variance.": (
            (
                f"{scheme.name} at eta = {rate}"
                for scheme, rate in product(TIMED, LATE)
                if _variance(results, scheme, rate) < _variance(results, REPETITION, rate)
            ),
            ", ".join(f"{_variance(results, REPETITION, rate):.2f}" for rate in LATE),
        ),
    }
    drawn = {
        "For resilience Random Sparse: only MDS, which is too noisy, survives more.": (
            _survive_more(results),
            "of the timed schemes, with either kind of stragglers",
        ),
        "For both LDGM: its variance and its success lie between those of the two.": (
            _not_between(results),
            "at both rates, with either kind of stragglers",
        ),
    }
    printed = {
        "A larger V generally leads to a lower reward.": (
            [] if correlation <= CLEAR else [said],
            f"{said} over the 15 cells of Table VI",
        )
    }
    return [
        *judge_each(virtual, VIRTUAL),
        *judge_each(drawn, DRAWN),
        *judge_each(printed, PRINTED),
    ]


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
    return bool(low["value"] < high["value"] - ERRORS * together(low, high))


def _survive_more(results: Results) -> list[str]:
    sparse = SPARSE[2]
    return [
        f"{scheme.name} at eta = {rate} ({model})"
        for scheme, model, rate in product(TIMED, StragglerModel, LATE)
        if scheme not in (MDS, sparse) and _less(results, sparse, scheme, model, rate)
    ]


def _not_between(results: Results) -> list[str]:
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
