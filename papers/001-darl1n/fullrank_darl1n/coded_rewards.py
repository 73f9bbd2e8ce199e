"""Rewards of Table VI of [DARL1N]: 12 agents trained by 24 learners that sample independently.

Every learner draws its own samples of each unit that its row combines, and an iteration commits as
soon as the rows have rank M, as in the paper. Learners answer in random order, so that any rows may
come first; lateness changes times, which ``times`` simulates, and not what is learnt.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from fullrank.common.types import Array
from fullrank.runs.statistics import student
from fullrank_darl1n.learning_claims import TEAM
from fullrank_darl1n.published import (
    DARL1N,
    FOOD,
    LDGM,
    MDS,
    REPETITION,
    SPARSE,
    TABLE_VI,
    TIMED,
    UNCODED,
    Darl1nScale,
    Scheme,
)
from fullrank_darl1n.runs import mean_curve
from fullrank_darl1n.trials import Trial
from fullrank_papers.cells import Results
from fullrank_papers.claims import ClaimResult, by_interval, measured, undecided, untested
from fullrank_papers.paper import table

BATCH = 256
"""Minibatch of a unit; a row of ``mds`` has twelve of them."""
EVERY = 10
"""Iterations from one evaluation to the next."""
LITTLE, MUCH = 0.25, 0.75
"""Shares of the uncoded gain: codes that gain less do not learn, codes that gain more do."""


def coded_trials(scale: Darl1nScale, scheme: Scheme) -> list[Trial]:
    """One run for each seed; none if the scale has no iterations for them."""
    own = replace(scale, iterations=scale.coded, batch=BATCH, every=EVERY)
    return [
        Trial(task=FOOD, size=TEAM.size, method=DARL1N, scale=own, seed=seed, scheme=scheme)
        for seed in range(scale.seeds if scale.coded else 0)
    ]


def returns(results: Results, scale: Darl1nScale) -> Mapping[str, Array]:
    """First and final returns of seeds that all schemes have, by scheme, shape (2, seeds)."""
    runs = {scheme.name: coded_trials(scale, scheme) for scheme in TIMED}
    whole = [
        seed
        for seed in range(scale.seeds if scale.coded else 0)
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
    """Judge Table VI by the gains in as many iterations as the uncoded scheme."""
    claims = {
        f"MDS does not learn: it gains less than {LITTLE:.0%} of uncoded.": (MDS, LITTLE, -1),
        f"Sparse does not learn: it gains less than {LITTLE:.0%} of uncoded.": (
            SPARSE[2],
            LITTLE,
            -1,
        ),
        f"Repetition learns: it gains more than {MUCH:.0%} of uncoded.": (REPETITION, MUCH, 1),
        f"LDGM learns: it gains more than {MUCH:.0%} of uncoded.": (LDGM[1], MUCH, 1),
    }
    if not scale.coded:
        return [untested(claim, scale.short) for claim in claims]
    found = returns(results, scale)
    seeds = found[UNCODED.name].shape[1] if found else 0
    if seeds < scale.seeds:
        done = f"{seeds} of {scale.seeds} seeds of all schemes are computed"
        return [undecided(claim, done) for claim in claims]
    judged = []
    for claim, (scheme, limit, sign) in claims.items():
        share = student(shares(found, scheme))
        said = f"{share.mean:.0%} [{share.low:.0%}, {share.high:.0%}]"
        judged.append(
            by_interval(
                claim, share, limit, said, sign=sign, strength=measured(seeds, interval=True)
            )
        )
    return judged


def rewards_table(results: Results, scale: Darl1nScale) -> str:
    """Published rewards, ours, and gains, a row for each scheme; empty without results."""
    found = returns(results, scale)
    rows = []
    for scheme in TIMED if found else ():
        begin, end = found[scheme.name]
        own = (_listed(TABLE_VI[scheme.name].reward), f"{begin.mean():.1f}", _listed(end.round(1)))
        rows.append([scheme.name, *own, f"{shares(found, scheme).mean():.0%}"])
    heads = ("scheme", "reward: published", "at first", "at the end, by seed")
    return table([*heads, "of the uncoded gain"], rows) if rows else ""


def _listed(values: Iterable[float]) -> str:
    return " / ".join(f"{value:g}" for value in values)
