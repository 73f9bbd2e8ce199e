"""A distance chosen by successive halving, ours after [DARL1N, Sec. VII], beside fixed ones.

A halved run equals, bit for bit, the run with the distance that it ends with: choices and ends
follow from the curves of the fixed distances.
"""

from typing import NamedTuple

import numpy as np

from fullrank.common.types import Interval
from fullrank_reproduction.claim_results import (
    ClaimResult,
    Whose,
    by_interval,
    measured,
    undecided,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.contact_distance import (
    WITHIN,
    WORLDS,
    Distance,
    SweptRuns,
    SweptWorld,
    compared,
    in_percent,
)
from fullrank_reproduction.darl1n.training.halving import averaged, halve, rungs_of

JUDGED = "whole run"
SPANS = {JUDGED: (0.0, 1.0), "first half": (0.0, 0.5), "second half": (0.5, 1.0)}
"""Parts of a run over which rungs are evenly spaced, as shares of its iterations."""
WAYS = ALONE, TOGETHER = "each seed alone", "the mean of the seeds"
"""Returns that decide at a rung."""


class Halved(NamedTuple):
    """Choices by halving in one world."""

    distances: tuple[Distance, ...]
    """The choice for each seed."""
    cost: float
    """Iterations of all runs of a seed, in multiples of one run."""
    share: Interval
    """Gain as a share of the best fixed distance's."""

    @property
    def said(self) -> str:
        """The choices; one if they are equal."""
        alike = len(set(self.distances)) == 1
        return ", ".join(map(str, self.distances[:1] if alike else self.distances))


def halved(
    found: SweptRuns, world: SweptWorld, budget: Darl1nBudget, *, by: str, span: str
) -> Halved:
    """Halve the fixed distances of a world, by each seed's returns or by their mean."""
    trial = world.trials(budget, world.fixed[0])[0]
    seeds = range(budget.seeds)
    begin, end = (int(share * trial.iterations) for share in SPANS[span])
    rungs = [begin + rung for rung in rungs_of(len(world.fixed), iterations=end - begin)]
    groups = [[seed] for seed in seeds] if by == ALONE else [list(seeds)]

    def score(distance: Distance, rung: int) -> float:
        curves = [found.curves[distance][seed] for seed in group]
        wanted = np.isin(curves[0].iterations, averaged(rung, every=trial.every))
        return float(np.mean([curve.returns[wanted] for curve in curves]))

    chosen: dict[int, Distance] = {}
    for group in groups:
        *_, last = halve(world.fixed, rungs, iterations=trial.iterations, score=score)
        chosen |= dict.fromkeys(group, last.kept[0])
    ends = np.array([found.ends(chosen[seed])[seed] for seed in seeds])
    distances = tuple(chosen[seed] for seed in seeds)
    return Halved(distances, last.whole_cost(trial.iterations), found.share_of(ends))


def judge_halving(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge whether a halved run ends as well as the best fixed distance."""
    worlds = WORLDS if budget.judges else ()
    return [
        _judged(world, compared(results, budget, world), budget, by)
        for world in worlds
        for by in WAYS
    ]


def _judged(
    world: SweptWorld, found: SweptRuns | None, budget: Darl1nBudget, by: str
) -> ClaimResult:
    claim = (
        f"{world.name}: halving by {by} gains at least {1 - WITHIN:.0%} of the best fixed "
        "distance's."
    )
    if found is None:
        return undecided(claim, "not all distances have all seeds", whose=Whose.OURS)
    result = halved(found, world, budget, by=by, span=JUDGED)
    said = (
        f"{in_percent(result.share)}, with d = {result.said}, for {result.cost:.1f} runs instead "
        f"of {len(world.fixed)}"
    )
    strength = measured(budget.seeds, interval=True)
    return by_interval(claim, result.share, 1 - WITHIN, said, strength=strength, whose=Whose.OURS)


def of_halving(results: Results, budget: Darl1nBudget) -> str:
    """Markdown table with a row for each placing of rungs in each world whose runs are there."""
    lines = [
        f"| world | rungs | runs | {ALONE}: d | share | {TOGETHER}: d | share |",
        "|" + "---|" * 7,
    ]
    for world in WORLDS:
        found = compared(results, budget, world)
        if found is None:
            continue
        for span in SPANS:
            results_by = [halved(found, world, budget, by=by, span=span) for by in WAYS]
            told = (f"{each.said} | {in_percent(each.share)}" for each in results_by)
            cost = f"{results_by[0].cost:.1f}"
            lines.append(f"| {world.name} | {span} | {cost} | {' | '.join(told)} |")
    return "\n".join(lines)
