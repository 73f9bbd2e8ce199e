"""The claims of [DARL1N, Sec. VI-B] on times: Fig. 7 and Table VI."""

from collections.abc import Iterator, Sequence
from itertools import product

from fullrank_reproduction.claim_results import CIRCULAR, ClaimResult, Whose, judge, simulated
from fullrank_reproduction.darl1n.published import (
    CONVERGENCE_S,
    DELAYS_S,
    LDGM,
    MDS,
    RATES,
    REPETITION,
    SPARSE,
    TIMED,
    UNCODED,
    Scheme,
)
from fullrank_reproduction.darl1n.results import Results, seconds
from fullrank_reproduction.darl1n.straggler_models import StragglerModel
from fullrank_reproduction.darl1n.times import PaperMachines

FLAT = 1.1
"""Times that differ by less than this factor do not grow."""
SLOWER = 0.95
"""Share of uncoded's growth below which a scheme degrades more slowly."""
NEAR = 0.15
"""Relative tolerance of a predicted convergence time."""
LIGHT, DENSE = (REPETITION, LDGM[1]), (MDS, SPARSE[2])
LATE = RATES[1:]
VIRTUAL = simulated("machines solved from three cells of Table VI")
ALIKE = simulated("equal iterations for all, which the next claim denies")


def judge_figure(results: Results, model: StragglerModel) -> list[ClaimResult]:
    """Results for Fig. 7, for one straggler model."""
    wins, pairs = _light_wins(results, model)
    return [
        judge(
            "Without stragglers uncoded is fastest, MDS and sparse slowest.",
            list(_disordered(results, model)),
            grounds="all others lie between",
            strength=CIRCULAR,
        ),
        judge(
            "Repetition and LDGM slow down less than uncoded.",
            list(_as_fragile(results, model)),
            grounds="at both rates and delays",
            strength=VIRTUAL,
        ),
        judge(
            "They are quicker than MDS and sparse in most cases.",
            [] if 2 * wins > pairs else [f"in {wins} of {pairs} only"],
            grounds=f"in {wins} of {pairs}",
            strength=VIRTUAL,
        ),
        judge(
            "MDS and sparse do not grow much as Delta goes from 1 to 4.",
            list(_growing(results, model)),
            grounds=f"by a factor below {FLAT}",
            strength=VIRTUAL,
        ),
        judge(
            "MDS and sparse are quickest where delay and rate are largest.",
            list(_quicker_than_dense(results, model)),
            grounds=f"Delta = {DELAYS_S[-1]:g} s, eta = {LATE[-1]}",
            strength=VIRTUAL,
        ),
    ]


def judge_convergence(results: Results, machines: PaperMachines) -> list[ClaimResult]:
    """Results for Table VI, with independent stragglers."""
    return [
        judge(
            "LDGM converges first where there are stragglers, if all need the same iterations.",
            list(_before_ldgm(results)),
            grounds="at both rates",
            strength=ALIKE,
        ),
        judge(
            "All schemes need the same number of iterations to converge.",
            list(_elsewhere(results, machines)),
            grounds=f"{machines.iterations:.0f}; all times within {NEAR:.0%}",
            strength=VIRTUAL,
            whose=Whose.OURS,
        ),
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
    """Number of comparisons that repetition and LDGM win, and of all comparisons."""
    outcomes = [
        seconds(results, light, model, *case) < seconds(results, dense, model, *case)
        for light, dense in product(LIGHT, DENSE)
        for case in product(DELAYS_S, RATES)
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
        for rate, said in zip(RATES, CONVERGENCE_S[scheme.name], strict=True):
            iteration_s = seconds(results, scheme, StragglerModel.BERNOULLI, DELAYS_S[0], rate)
            ratio = said / (machines.iterations * iteration_s)
            if abs(ratio - 1.0) > NEAR:
                yield f"{scheme.name} at eta = {rate}: {ratio:.2f} times as many"
