"""Claims of [DARL1N, Sec. VI-B] on Tables V and VI and on noise; tests of its published numbers.

Rewards of Table VI are those of 12 agents trained by 24 learners that sample independently. Every
learner draws its own samples of each unit that its row combines, and an iteration commits as soon
as the rows have rank M, as in the paper. Learners answer in random order, so that any rows may come
first; lateness changes times, which ``times`` simulates, and not what is learnt.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise, product

import numpy as np

from fullrank.common.types import JSON, Array
from fullrank_darl1n import coding
from fullrank_darl1n.coding import at, overhead, success, variance
from fullrank_darl1n.learning_claims import ALIKE, TEAM
from fullrank_darl1n.published import (
    AGENTS,
    DARL1N,
    FOOD,
    LDGM,
    LEARNERS,
    MDS,
    RATES,
    RECEIVED,
    REPETITION,
    SCHEMES,
    SPARSE,
    TABLE_V,
    TIMED,
    UNCODED,
    VANDERMONDE,
    Darl1nScale,
    Scheme,
    StragglerModel,
    TableVRow,
    success_probability,
)
from fullrank_darl1n.runs import mean_curve
from fullrank_darl1n.trials import Trial
from fullrank_papers.cells import Results
from fullrank_papers.claims import (
    CIRCULAR,
    DIGITS,
    PRINTED,
    ClaimResult,
    Held,
    Strength,
    by_samples,
    judge_each,
)

CLOSE = 0.02
"""Tolerance within which a published number equals a closed form."""
ERRORS = 3.0
"""Standard errors within which two means count as equal."""
DRAWS = 10
"""Draws over which the paper averages overheads."""
DRAWN = Strength(f"Monte Carlo, {ERRORS:g} standard errors")
DESCRIPTIVE = Strength("descriptive: its limit is ours and far from the values", Held.INPUT)


def judge_published(results: Results) -> list[ClaimResult]:
    """Results for the origin of the published numbers."""
    told = {
        "Stragglers follow Assumption 4: each learner with probability eta.": (
            _unlike(StragglerModel.BERNOULLI),
            "all rates with a closed form agree",
        ),
        "Exactly round(eta N) learners straggle.": (
            _unlike(StragglerModel.FIXED),
            f"all rates with a closed form agree within {CLOSE}",
        ),
        f"Overheads of random matrices are means over {DRAWS} draws.": (
            _unlikely_overheads(),
            f"within {ERRORS:g} standard errors of such means",
        ),
        "V of repetition follows from eq. 16.": (
            _unlike_variance(results, REPETITION, TABLE_V[REPETITION.name]),
            _at_rows(results, REPETITION),
        ),
        "V of MDS is that of the Vandermonde matrix of the authors' earlier code.": (
            _unlike_variance(results, VANDERMONDE, TABLE_V[MDS.name]),
            _at_rows(results, VANDERMONDE),
        ),
    }
    return judge_each(told, PRINTED, ours=("Exactly", "V of MDS"))


def judge_table(results: Results) -> list[ClaimResult]:
    """Results for the claims about the table, from this reproduction's numbers."""
    loads = {"Uncoded computes least, MDS most.": (_outside(results), "in all rows")}
    told = {
        "MDS is the most resilient.": (
            _more_resilient(results),
            "no scheme succeeds more often, with either kind of stragglers",
        ),
        "More density costs more and survives more.": (
            chain(_not_rising(results, SPARSE), _not_rising(results, LDGM)),
            "sparse and LDGM, with either kind of stragglers",
        ),
        "MDS has the largest V, with the Vandermonde matrix.": (
            _beaten(results, VANDERMONDE, sign=1),
            _at_rows(results, VANDERMONDE),
        ),
        "MDS has the largest V, with orthonormal columns.": (
            _beaten(results, MDS, sign=1),
            _at_rows(results, MDS),
        ),
        "Repetition has the smallest V.": (
            _beaten(results, REPETITION, sign=-1),
            _at_rows(results, REPETITION),
        ),
        "Sparse has a larger V than LDGM.": (
            _lower_variance_of_sparse(results),
            f"mean over the densities, {_at_rows(results, *SPARSE, *LDGM)}",
        ),
    }
    drawn = judge_each(told, DRAWN, ours=("MDS has the largest V, with orthonormal",))
    return [*judge_each(loads, CIRCULAR), *drawn]  # loads are those of the codes' definitions


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


def _computed(results: Results, *schemes: Scheme) -> list[int]:
    """The |J| at which enough sets decode for V of all these schemes."""
    return [
        received
        for received in RECEIVED
        if not any(math.isnan(variance(results, each, received)[0]) for each in schemes)
    ]


def _at_rows(results: Results, *schemes: Scheme) -> str:
    return f"at |J| = {', '.join(map(str, _computed(results, *schemes)))}"


def _unlike_variance(results: Results, scheme: Scheme, published: TableVRow) -> Iterator[str]:
    for received in _computed(results, scheme):
        said = published.variance[RECEIVED.index(received)]
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
        if its["value"] > best["value"] + ERRORS * together(best, its):
            yield f"{scheme.name} at eta = {rate} ({model}): {its['value']:.3f}"


def _not_rising(results: Results, schemes: Sequence[Scheme]) -> Iterator[str]:
    for thinner, denser in pairwise(schemes):
        if overhead(results, denser) <= overhead(results, thinner):
            yield f"{denser.name} computes no more than {thinner.name}"
        for model, rate in product(StragglerModel, RATES):
            less, more = (success(results, scheme, model, rate) for scheme in (thinner, denser))
            if more["value"] < less["value"] - ERRORS * together(less, more):
                yield f"{denser.name} survives less than {thinner.name} at eta = {rate}"


def together(one: JSON, other: JSON) -> float:
    """Standard error of a difference, which is never below that of rounding."""
    return math.hypot(one["standard_error"], other["standard_error"], DIGITS)


def _beaten(results: Results, first: Scheme, *, sign: int) -> Iterator[str]:
    """Schemes whose V, where computed, is larger (``sign`` 1) or smaller (-1) than the first's."""
    for received in _computed(results, first):
        base, error = variance(results, first, received)
        others = [(scheme.name, *variance(results, scheme, received)) for scheme in SCHEMES]
        computed = [other for other in others if not math.isnan(other[1])]
        name, its, other = max(computed, key=lambda entry: sign * entry[1])
        if sign * (its - base) > ERRORS * math.hypot(error, other):
            yield f"with {received} rows: {first.name} {base:.2f}, {name} {its:.2f}"


def _lower_variance_of_sparse(results: Results) -> Iterator[str]:
    for received in _computed(results, *SPARSE, *LDGM):
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
        [(name, median(results, name, size)) for name in coding.DENSE]
        for size in (AGENTS, RECOVERED)
    )
    bound = "No code decodes with a mean variance below M / |J|."
    drowned = (
        f"With |J| = M dense codes decode more noise than gradient (over {DROWNED:g} times that "
        "of one learner)."
    )
    clear = f"With |J| = {RECOVERED} they do not (at most {CLEAR:g} times)."
    limits = {
        drowned: (
            (f"{name}: {value:.1f}" for name, value in first if value < DROWNED),
            ", ".join(f"{name} {value:.0f}" for name, value in first),
        ),
        clear: (
            (f"{name}: {value:.1f}" for name, value in then if value > CLEAR),
            ", ".join(f"{name} {value:.1f}" for name, value in then),
        ),
    }
    least = {bound: (_below_the_bound(results), "in every set J that was looked at")}
    return [
        *judge_each(least, CIRCULAR, ours=(bound,)),  # a theorem
        *judge_each(limits, DESCRIPTIVE, ours=(drowned, clear)),
    ]


def median(results: Results, name: str, size: int) -> float:
    """Median of the mean variance over decodable sets; every set of a dense code is decodable."""
    return float(at(results, name, size)["noise"][1])


def _below_the_bound(results: Results) -> Iterator[str]:
    for name in coding.CODES:
        for size in coding.SIZES:
            least = at(results, name, size)["least"]
            if least is not None and least < 1.0 - 1e-9:
                yield f"{name} with {size} rows: {least:.3f} of it"


BATCH = 256
"""Minibatch of a unit; a row of ``mds`` has twelve of them."""
EVERY = 10
"""Iterations from one evaluation to the next."""


def coded_trials(scale: Darl1nScale, scheme: Scheme) -> list[Trial]:
    """One run for each seed; none if the scale has no iterations for them."""
    own = replace(scale, iterations=scale.coded, batch=BATCH, every=EVERY)
    return [
        Trial(task=FOOD, size=TEAM.size, method=DARL1N, scale=own, seed=seed, scheme=scheme)
        for seed in (scale.seeds if scale.coded else ())
    ]


def returns(results: Results, scale: Darl1nScale) -> Mapping[str, Array]:
    """First and final returns of seeds that all schemes have, by scheme, shape (2, seeds)."""
    runs = {
        scheme.name: {trial.seed: trial for trial in coded_trials(scale, scheme)}
        for scheme in TIMED
    }
    whole = [
        seed
        for seed in (scale.seeds if scale.coded else ())
        if all(own[seed].name in results for own in runs.values())
    ]
    found = {}
    for name, own in runs.items():
        curves = [mean_curve([results[own[seed].name]]) for seed in whole]
        found[name] = np.array([[curve.returns[0], curve.end] for curve in curves]).T
    return found if whole else {}


def shares(found: Mapping[str, Array], scheme: Scheme) -> Array:
    """Gain of each seed, as a share of the uncoded gain from that seed, shape (seeds,)."""
    (begin, end), (first, last) = found[scheme.name], found[UNCODED.name]
    share: Array = (end - begin) / (last - first)
    return share


def judge_rewards(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge Table VI by ends after as many iterations, in pairs with the uncoded scheme's."""
    found = returns(results, scale)
    seeds = found[UNCODED.name].shape[1] if found else 0
    missing = [] if seeds == len(scale.seeds) else [scale.short]

    def judged(claim: str, scheme: Scheme, *, below: bool) -> ClaimResult:
        parts, low, high = dict[str, Array](), -math.inf, 0.0
        if found:
            (begin, end), plain = found[UNCODED.name], found[scheme.name][1]
            parts = {"": 100 * (plain - end) / float((end - begin).mean())}
        if not below:
            low, high = -100 * ALIKE, math.inf
        return by_samples(
            claim, parts, low=low, high=high, censored=missing, said="% of the uncoded gain"
        )

    as_high = f"ends as high as uncoded, within {ALIKE:.0%} of its gain, or higher."
    return [
        judged("MDS ends lower than uncoded.", MDS, below=True),
        judged("Sparse ends lower than uncoded.", SPARSE[2], below=True),
        judged(f"Repetition {as_high}", REPETITION, below=False),
        judged(f"LDGM {as_high}", LDGM[1], below=False),
    ]
