"""Fig. 6 of [DARL1N]: costs and gains of the neighbour distance d, in Grassland with 6 agents.

Grass pays 10 and an adversary's touch costs 100. The paper does not print its distances.
"""

from collections.abc import Callable

import numpy as np

from fullrank.common.types import Array
from fullrank.runs.statistics import student
from fullrank_reproduction.claim_results import (
    ClaimResult,
    by_interval,
    judge,
    measured,
    untested,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import LearningCurve, mean_curve
from fullrank_reproduction.darl1n.training.published import DARL1N, GRASSLAND
from fullrank_reproduction.darl1n.training.trials import Trial

DISTANCES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Neighbour distances d; the world is 3 wide."""
REWARDS = {"grass_reward": 10.0, "contact_cost": 100.0}


def trials(budget: Darl1nBudget, distance: float) -> list[Trial]:
    """One trial for each seed."""
    return [
        Trial(
            task=GRASSLAND,
            size=GRASSLAND.sizes[0],
            method=DARL1N,
            budget=budget,
            seed=seed,
            changes={"distance": distance, **REWARDS},
        )
        for seed in range(budget.seeds)
    ]


def curves(results: Results, budget: Darl1nBudget) -> list[LearningCurve]:
    """Mean curve over the seeds for each distance; empty unless all runs are there."""
    runs = [trials(budget, distance) for distance in DISTANCES]
    if not all(trial.name in results for own in runs for trial in own):
        return []
    return [mean_curve([results[trial.name] for trial in own]) for own in runs]


def judge_distances(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge Fig. 6 by the smallest and the largest distance."""
    reward = "The return rises with d."
    pace, end = (
        _paired(results, budget, value)
        for value in (lambda curve: curve.iteration_s, lambda curve: curve.end)
    )
    return [
        _rising("The time of an iteration rises with d.", pace, unit=" s"),
        _rising(reward, end, unit="") if budget.judges else untested(reward, budget.short),
    ]


def _paired(
    results: Results, budget: Darl1nBudget, value: Callable[[LearningCurve], float]
) -> Array:
    """Values of the smallest and of the largest distance, shape (2, seeds)."""
    return np.array(
        [
            [value(mean_curve([results[trial.name]])) for trial in trials(budget, distance)]
            for distance in (DISTANCES[0], DISTANCES[-1])
        ]
    )


def _rising(claim: str, values: Array, *, unit: str) -> ClaimResult:
    """Judge by Student's interval of the paired difference; one seed cannot support a claim."""
    (first, last), seeds = values.mean(axis=1), values.shape[1]
    said = f"{first:.3g}{unit} at d = {DISTANCES[0]}, {last:.3g}{unit} at {DISTANCES[-1]}"
    gain = values[1] - values[0]
    if seeds == 1:
        against = [] if gain[0] > 0 else [said]
        return judge(claim, against, grounds=said, strength=measured(1))
    interval = student(gain)
    said = f"{said}, difference {interval.mean:.3g} [{interval.low:.3g}, {interval.high:.3g}]"
    return by_interval(claim, interval, 0.0, said, strength=measured(seeds, interval=True))


def of_distances(results: Results, budget: Darl1nBudget) -> str:
    """Markdown table with a row for each distance."""
    lines = ["| d | s an iteration | return at the end |", "|---|---|---|"]
    for distance, curve in zip(DISTANCES, curves(results, budget), strict=True):
        lines.append(f"| {distance} | {curve.iteration_s:.3f} | {curve.end:.1f} |")
    return "\n".join(lines)
