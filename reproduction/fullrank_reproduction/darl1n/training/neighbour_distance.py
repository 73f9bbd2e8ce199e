"""Fig. 6 of [DARL1N]: costs and gains of the neighbour distance d, in Grassland with 6 agents.

Grass pays 10 and an adversary's touch costs 100. The paper does not print its distances.
"""

from fullrank_reproduction.claim_results import ClaimResult, Held, judge
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import LearningCurve, mean_curve
from fullrank_reproduction.darl1n.training.published import DARL1N, GRASSLAND
from fullrank_reproduction.darl1n.training.trials import Trial

DISTANCES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Neighbour distances d; the world is 3 wide."""
_REWARDS = {"grass_reward": 10.0, "contact_cost": 100.0}


def trials(budget: Darl1nBudget, distance: float) -> list[Trial]:
    """One trial for each seed."""
    return [
        Trial(
            task=GRASSLAND,
            size=GRASSLAND.sizes[0],
            method=DARL1N,
            budget=budget,
            seed=seed,
            changes={"distance": distance, **_REWARDS},
        )
        for seed in range(budget.seeds)
    ]


def curves(results: Results, budget: Darl1nBudget) -> list[LearningCurve]:
    """Mean curve over the seeds for each distance."""
    return [
        mean_curve([results[trial.name] for trial in trials(budget, distance)])
        for distance in DISTANCES
    ]


def judge_distances(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge Fig. 6 by the smallest and the largest distance."""
    first, *_, last = curves(results, budget)
    times = f"{first.iteration_s:.3f} s at d = {DISTANCES[0]}, {last.iteration_s:.3f} s at 1.6"
    ends = f"{first.end:.1f} at d = {DISTANCES[0]}, {last.end:.1f} at 1.6"
    reward = "The return rises with d."
    return [
        judge(
            "The time of an iteration rises with d.",
            [] if last.iteration_s > first.iteration_s else [times],
            grounds=times,
        ),
        judge(reward, [] if last.end > first.end else [ends], grounds=ends)
        if budget.whole(GRASSLAND.sizes[0])
        else ClaimResult(claim=reward, held=Held.NOT_TESTABLE, reason=budget.short),
    ]


def of_distances(results: Results, budget: Darl1nBudget) -> str:
    """Markdown table with a row for each distance."""
    lines = ["| d | s an iteration | return at the end |", "|---|---|---|"]
    for distance, curve in zip(DISTANCES, curves(results, budget), strict=True):
        lines.append(f"| {distance} | {curve.iteration_s:.3f} | {curve.end:.1f} |")
    return "\n".join(lines)
