"""The claims of [DARL1N, Sec. VI-B] on Table V and on noise, and tests of its published numbers."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from fullrank.common.types import JSON
from fullrank_reproduction.claim_results import EXACT, PRINTED, ClaimResult, Strength, Whose, judge
from fullrank_reproduction.darl1n import noise
from fullrank_reproduction.darl1n.published import (
    AGENTS,
    LDGM,
    LEARNERS,
    MDS,
    RATES,
    RECEIVED,
    REPETITION,
    SCHEMES,
    SPARSE,
    TABLE_V,
    UNCODED,
    PublishedRow,
    Scheme,
)
from fullrank_reproduction.darl1n.results import Results, at, overhead, success, variance
from fullrank_reproduction.darl1n.straggler_models import StragglerModel, success_probability
from fullrank_reproduction.darl1n.vandermonde import VANDERMONDE

CLOSE = 0.02
"""Tolerance within which a published number equals a closed form."""
ERRORS = 3.0
"""Standard errors within which two means count as equal."""
DRAWS = 10
"""Draws over which the paper averages overheads."""
ENOUGH = "at every |J| at which enough sets decode"
DRAWN = Strength(f"Monte Carlo, {ERRORS:g} standard errors")
DESCRIPTIVE = Strength("descriptive: its limit is ours and far from the values")


def judge_published(results: Results) -> list[ClaimResult]:
    """Results for the origin of the published numbers."""
    return [
        judge(
            "Stragglers follow Assumption 4: each learner with probability eta.",
            list(_unlike(StragglerModel.BERNOULLI)),
            grounds="all rates with a closed form agree",
            strength=PRINTED,
        ),
        judge(
            "Exactly round(eta N) learners straggle.",
            list(_unlike(StragglerModel.FIXED)),
            grounds=f"all rates with a closed form agree within {CLOSE}",
            strength=PRINTED,
            whose=Whose.OURS,
        ),
        judge(
            f"Overheads of random matrices are means over {DRAWS} draws.",
            list(_unlikely_overheads()),
            grounds=f"within {ERRORS:g} standard errors of such means",
            strength=PRINTED,
        ),
        judge(
            "V of repetition follows from eq. 16.",
            list(_unlike_variance(results, REPETITION, TABLE_V[REPETITION.name])),
            grounds=ENOUGH,
            strength=PRINTED,
        ),
        judge(
            "V of MDS is that of the Vandermonde matrix of the authors' earlier code.",
            list(_unlike_variance(results, VANDERMONDE, TABLE_V[MDS.name])),
            grounds=ENOUGH,
            strength=PRINTED,
            whose=Whose.OURS,
        ),
    ]


def judge_table(results: Results) -> list[ClaimResult]:
    """Results for the claims about the table, from this reproduction's numbers."""
    return [
        judge(
            "Uncoded computes least, MDS most.",
            list(_outside(results)),
            grounds="in all rows",
            strength=DRAWN,
        ),
        judge(
            "MDS is the most resilient.",
            list(_more_resilient(results)),
            grounds="no scheme succeeds more often, with either kind of stragglers",
            strength=DRAWN,
        ),
        judge(
            "More density costs more and survives more.",
            [*_not_rising(results, SPARSE), *_not_rising(results, LDGM)],
            grounds="sparse and LDGM, with either kind of stragglers",
            strength=DRAWN,
        ),
        judge(
            "MDS has the largest V, with the Vandermonde matrix.",
            list(_beaten(results, VANDERMONDE, sign=1)),
            grounds=ENOUGH,
            strength=DRAWN,
        ),
        judge(
            "MDS has the largest V, with orthonormal columns.",
            list(_beaten(results, MDS, sign=1)),
            grounds=ENOUGH,
            strength=DRAWN,
            whose=Whose.OURS,
        ),
        judge(
            "Repetition has the smallest V.",
            list(_beaten(results, REPETITION, sign=-1)),
            grounds=ENOUGH,
            strength=DRAWN,
        ),
        judge(
            "Sparse has a larger V than LDGM.",
            list(_lower_variance_of_sparse(results)),
            grounds=f"mean over the densities, {ENOUGH}",
            strength=DRAWN,
        ),
    ]


def _unlike(model: StragglerModel) -> Iterator[str]:
    for name, row in TABLE_V.items():
        for rate, said in zip(RATES, row.success, strict=True):
            closed = success_probability(name, model, rate)
            if closed is not None and abs(closed - said) > CLOSE:
                yield f"{name} at eta = {rate}: published {said:.3g}, must be {closed:.3f}"


def _unlikely_overheads() -> Iterator[str]:
    for scheme in (*SPARSE, *LDGM):
        density, kept = scheme.params["density"], 0 if scheme in SPARSE else AGENTS
        drawn = AGENTS * (LEARNERS - kept)
        mean = (drawn * density + kept) / AGENTS - 1.0
        error = math.sqrt(drawn * density * (1.0 - density) / DRAWS) / AGENTS
        said = TABLE_V[scheme.name].overhead
        if abs(said - mean) > ERRORS * error:
            yield f"{scheme.name}: published {said:g}, must be {mean:.2f} ± {error:.2f}"


def _unlike_variance(results: Results, scheme: Scheme, published: PublishedRow) -> Iterator[str]:
    for received, said in zip(RECEIVED, published.variance, strict=True):
        computed, error = variance(results, scheme, received)
        if abs(computed - said) > ERRORS * error + CLOSE:
            yield f"with {received} rows: published {said:g}, must be {computed:.2f}"


def _outside(results: Results) -> Iterator[str]:
    least, most = overhead(results, UNCODED), overhead(results, MDS)
    for scheme in SCHEMES:
        if not least <= overhead(results, scheme) <= most:
            yield f"{scheme.name}: {overhead(results, scheme):.2f}"


def _more_resilient(results: Results) -> Iterator[str]:
    for scheme, model, rate in product(SCHEMES, StragglerModel, RATES):
        best = success(results, MDS, model, rate)
        its = success(results, scheme, model, rate)
        if its["value"] > best["value"] + ERRORS * _together(best, its):
            yield f"{scheme.name} at eta = {rate} ({model}): {its['value']:.3f}"


def _not_rising(results: Results, schemes: Sequence[Scheme]) -> Iterator[str]:
    for thinner, denser in pairwise(schemes):
        if overhead(results, denser) <= overhead(results, thinner):
            yield f"{denser.name} computes no more than {thinner.name}"
        for model, rate in product(StragglerModel, RATES):
            less, more = (success(results, scheme, model, rate) for scheme in (thinner, denser))
            if more["value"] < less["value"] - ERRORS * _together(less, more):
                yield f"{denser.name} survives less than {thinner.name} at eta = {rate}"


def _together(one: JSON, other: JSON) -> float:
    """Standard error of a difference."""
    return math.hypot(one["standard_error"], other["standard_error"])


def _beaten(results: Results, first: Scheme, *, sign: int) -> Iterator[str]:
    """Schemes whose V is larger (``sign`` 1) or smaller (-1) than that of the first."""
    for received in RECEIVED:
        base, error = variance(results, first, received)
        others = [(scheme.name, *variance(results, scheme, received)) for scheme in SCHEMES]
        computed = [other for other in others if not math.isnan(other[1])]
        name, its, other = max(computed, key=lambda entry: sign * entry[1])
        if sign * (its - base) > ERRORS * math.hypot(error, other):
            yield f"with {received} rows: {first.name} {base:.2f}, {name} {its:.2f}"


def _lower_variance_of_sparse(results: Results) -> Iterator[str]:
    for received in RECEIVED:
        sparse, ldgm = (
            sum(variance(results, scheme, received)[0] for scheme in schemes) / len(schemes)
            for schemes in (SPARSE, LDGM)
        )
        if sparse <= ldgm:
            yield f"with {received} rows: {sparse:.2f} against {ldgm:.2f}"


RECOVERED = 18
"""|J| from which dense codes are usable again."""
DROWNED, CLEAR = 10.0, 2.0
"""Median of the mean variance, in that of one learner's own gradient: unusable from the
first, harmless up to the second."""


def judge_noise(results: Results) -> list[ClaimResult]:
    """Results for the noise study."""
    first, then = (
        [(name, median(results, name, size)) for name in noise.DENSE]
        for size in (AGENTS, RECOVERED)
    )
    return [
        judge(
            "No code decodes with a mean variance below M / |J|.",
            list(_below_the_bound(results)),
            grounds="in every set J that was looked at",
            strength=EXACT,
            whose=Whose.OURS,
        ),
        judge(
            f"With |J| = M dense codes decode more noise than gradient (over {DROWNED:g} times "
            "that of one learner).",
            [f"{name}: {value:.1f}" for name, value in first if value < DROWNED],
            grounds=", ".join(f"{name} {value:.0f}" for name, value in first),
            strength=DESCRIPTIVE,
            whose=Whose.OURS,
        ),
        judge(
            f"With |J| = {RECOVERED} they do not (at most {CLEAR:g} times).",
            [f"{name}: {value:.1f}" for name, value in then if value > CLEAR],
            grounds=", ".join(f"{name} {value:.1f}" for name, value in then),
            strength=DESCRIPTIVE,
            whose=Whose.OURS,
        ),
    ]


def median(results: Results, name: str, size: int) -> float:
    """Median of the mean variance over decodable sets; every set of a dense code is decodable."""
    return float(at(results, name, size)["noise"][1])


def _below_the_bound(results: Results) -> Iterator[str]:
    for name in noise.CODES:
        for size in noise.SIZES:
            least = at(results, name, size)["least"]
            if least is not None and least < 1.0 - 1e-9:
                yield f"{name} with {size} rows: {least:.3f} of it"
