"""Rewards of Table VI of [DARL1N]: 12 agents trained by 24 learners that sample independently.

Every learner draws its own samples of each unit that its row combines, and an iteration commits as
soon as the rows have rank M, as in the paper. Learners answer in random order, so that any rows may
come first; lateness changes times, which ``times`` simulates, and not what is learnt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fullrank.common.types import Array
from fullrank.runs.statistics import student
from fullrank_reproduction.claim_results import (
    ClaimResult,
    by_interval,
    measured,
    undecided,
    untested,
)
from fullrank_reproduction.darl1n.published import (
    AGENTS,
    LDGM,
    MDS,
    REPETITION,
    REWARD,
    SPARSE,
    TIMED,
    UNCODED,
    Scheme,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import mean_curve
from fullrank_reproduction.darl1n.training.published import DARL1N, FOOD
from fullrank_reproduction.darl1n.training.trials import Trial

BATCH = 256
"""Minibatch of a unit; a row of ``mds`` has twelve of them."""
EVERY = 10
"""Iterations from one evaluation to the next."""
LITTLE, MUCH = 0.25, 0.75
"""Shares of the uncoded gain: codes that gain less do not learn, codes that gain more do."""
TEAM = next(size for size in FOOD.sizes if size.agents == AGENTS)


def trials(budget: Darl1nBudget, scheme: Scheme) -> list[Trial]:
    """One run for each seed; none if the budget has no iterations for them."""
    own = replace(budget, iterations=budget.coded, batch=BATCH, every=EVERY)
    return [
        Trial(task=FOOD, size=TEAM, method=DARL1N, budget=own, seed=seed, scheme=scheme)
        for seed in range(budget.seeds if budget.coded else 0)
    ]


def returns(results: Results, budget: Darl1nBudget) -> Mapping[str, Array]:
    """First and final returns of seeds that all schemes have, by scheme, shape (2, seeds)."""
    runs = {scheme.name: trials(budget, scheme) for scheme in TIMED}
    whole = [
        seed
        for seed in range(budget.seeds if budget.coded else 0)
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


def judge_rewards(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge Table VI by the gains in as many iterations as the uncoded scheme."""
    claims: list[tuple[str, Scheme, float, int]] = [
        *(
            (
                f"{name} does not learn: it gains less than {LITTLE:.0%} of uncoded.",
                dense,
                LITTLE,
                -1,
            )
            for name, dense in (("MDS", MDS), ("Sparse", SPARSE[2]))
        ),
        *(
            (f"{name} learns: it gains more than {MUCH:.0%} of uncoded.", light, MUCH, 1)
            for name, light in (("Repetition", REPETITION), ("LDGM", LDGM[1]))
        ),
    ]
    if not budget.coded:
        return [untested(claim, budget.short) for claim, *_ in claims]
    found = returns(results, budget)
    seeds = found[UNCODED.name].shape[1] if found else 0
    if seeds < budget.seeds:
        done = f"{seeds} of {budget.seeds} seeds of all schemes are computed"
        return [undecided(claim, done) for claim, *_ in claims]
    judged = []
    for claim, scheme, limit, sign in claims:
        share = student(shares(found, scheme))
        said = f"{share.mean:.0%} [{share.low:.0%}, {share.high:.0%}]"
        judged.append(
            by_interval(
                claim, share, limit, said, sign=sign, strength=measured(seeds, interval=True)
            )
        )
    return judged


def of_rewards(results: Results, budget: Darl1nBudget) -> str:
    """Published rewards, ours, and gains, a row for each scheme; empty without results."""
    found = returns(results, budget)
    if not found:
        return ""
    lines = [
        "| scheme | reward: published | at first | at the end, by seed | of the uncoded gain |",
        "|---|---|---|---|---|",
    ]
    for scheme in TIMED:
        begin, end = found[scheme.name]
        cells = (
            _listed(REWARD[scheme.name]),
            f"{begin.mean():.1f}",
            _listed(end.round(1).tolist()),
            f"{shares(found, scheme).mean():.0%}",
        )
        lines.append(f"| {scheme.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _listed(values: Sequence[float]) -> str:
    return " / ".join(f"{value:g}" for value in values)
