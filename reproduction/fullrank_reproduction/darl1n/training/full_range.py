"""DARL1N (Full Range) of [DARL1N, Figs. 2(b) and 3]: all agents are neighbours."""

from dataclasses import replace

import numpy as np

from fullrank.runs.statistics import student
from fullrank_reproduction.claim_results import (
    ClaimResult,
    by_interval,
    measured,
    undecided,
    untested,
)
from fullrank_reproduction.darl1n.published import AGENTS
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import runs
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import mean_curve
from fullrank_reproduction.darl1n.training.published import DARL1N, FOOD
from fullrank_reproduction.darl1n.training.trials import UNLIMITED, Trial

TEAM = runs.TeamSpec(FOOD, next(size for size in FOOD.sizes if size.agents == AGENTS))


def trials(budget: Darl1nBudget) -> list[Trial]:
    """One run for each seed."""
    own, changes = replace(budget, iterations=budget.full_range), {"distance": UNLIMITED}
    return [
        Trial(task=FOOD, size=TEAM.size, method=DARL1N, budget=own, seed=seed, changes=changes)
        for seed in range(budget.seeds if budget.full_range else 0)
    ]


def judge_full_range(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge Fig. 3 by as many iterations with and without a neighbour distance, seed by seed."""
    claims = (
        "Food Collection, M = 12: with all agents as neighbours (Full Range) DARL1N ends lower.",
        "Its iterations take longer (Fig. 2(b)).",
    )
    if not budget.full_range:
        return [untested(claim, budget.short) for claim in claims]
    pairs = [
        (
            mean_curve([results[near.name]]).until(full.iterations),
            mean_curve([results[full.name]]),
        )
        for near, full in zip(runs.trials(budget, TEAM, DARL1N), trials(budget), strict=True)
        if near.name in results and full.name in results
    ]
    if len(pairs) < budget.seeds:
        done = f"{len(pairs)} of {budget.seeds} seeds are computed"
        return [undecided(claim, done) for claim in claims]
    lost = student(np.array([near.end - full.end for near, full in pairs]))
    longer = student(np.array([full.iteration_s - near.iteration_s for near, full in pairs]))
    strength = measured(len(pairs), interval=True)
    return [
        by_interval(
            claim,
            gap,
            0.0,
            f"difference {gap.mean:.3g} [{gap.low:.3g}, {gap.high:.3g}]",
            strength=strength,
        )
        for claim, gap in zip(claims, (lost, longer), strict=True)
    ]
