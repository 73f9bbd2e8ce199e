"""The contact distance, ours after [DARL1N, Sec. VII], beside fixed ones.

In each world the smallest team trains with each distance from the same seeds. The best fixed
distance is the one with the highest mean end, which counts in its favour.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.common.types import Array, Interval
from fullrank.runs.statistics import student
from fullrank_reproduction.claim_results import (
    ClaimResult,
    Whose,
    by_interval,
    measured,
    undecided,
)
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import LearningCurve, mean_curve
from fullrank_reproduction.darl1n.training.neighbour_distance import DISTANCES, REWARDS
from fullrank_reproduction.darl1n.training.published import DARL1N, FOOD, GRASSLAND, Darl1nTask
from fullrank_reproduction.darl1n.training.trials import Trial

Distance: TypeAlias = float | str

CONTACT, DEFAULT = "contact", "default"
AROUND = (0.1, DEFAULT, 0.4)
"""The authors' distance of a team, one below and one above it."""
WITHIN = 0.05
"""Share of the best fixed distance's gain that the contact distance may lose."""
LAST = 1 / 3
"""Share of the iterations whose evaluations make the end of a run."""


class SweptWorld(NamedTuple):
    """A task, and the fixed distances that are compared in it."""

    name: str
    task: Darl1nTask
    fixed: tuple[Distance, ...] = AROUND
    rewards: Mapping[str, float] = {}

    def trials(self, budget: Darl1nBudget, distance: Distance) -> list[Trial]:
        """One run for each seed; none where the budget has too few to judge means."""
        changes = self.rewards if distance == DEFAULT else {"distance": distance, **self.rewards}
        return [
            Trial(
                task=self.task,
                size=self.task.sizes[0],
                method=DARL1N,
                budget=budget,
                seed=seed,
                changes=changes,
            )
            for seed in range(budget.seeds if budget.judges else 0)
        ]


WORLDS = (
    SweptWorld("Food Collection, M = 3", FOOD),
    SweptWorld("Grassland, M = 6", GRASSLAND),
    SweptWorld("Grassland, M = 6, rewards of Fig. 6", GRASSLAND, DISTANCES, REWARDS),
)


class SweptRuns(NamedTuple):
    """The runs of a world, by distance."""

    curves: Mapping[Distance, list[LearningCurve]]
    """Curves of the seeds."""
    best: Distance
    """The best fixed distance."""

    def ends(self, distance: Distance) -> Array:
        """Mean returns of the last iterations, shape (seeds,)."""
        curves = self.curves[distance]
        last = curves[0].iterations > (1 - LAST) * curves[0].iterations[-1]
        return np.array([curve.returns[last].mean() for curve in curves])

    def share(self, distance: Distance) -> Interval:
        """Gain of a distance as a share of the best fixed one's."""
        return self.share_of(self.ends(distance))

    def share_of(self, ends: Array) -> Interval:
        """Gain of runs that end so, shape (seeds,), by paired differences of the seeds."""
        best = self.ends(self.best)
        begin = np.mean([curve.returns[0] for curve in self.curves[self.best]])
        return student(1 + (ends - best) / float(best.mean() - begin))


def every(budget: Darl1nBudget) -> list[Trial]:
    """All runs of the comparison."""
    return [
        trial
        for world in WORLDS
        for distance in (CONTACT, *world.fixed)
        for trial in world.trials(budget, distance)
    ]


def compared(
    results: Results, budget: Darl1nBudget, world: SweptWorld, *, beside: Sequence[Distance] = ()
) -> SweptRuns | None:
    """The runs of a world's fixed distances and of those beside; None unless all are there."""
    runs = {distance: world.trials(budget, distance) for distance in (*beside, *world.fixed)}
    if not budget.judges or any(run.name not in results for own in runs.values() for run in own):
        return None
    curves = {
        distance: [mean_curve([results[run.name]]) for run in own] for distance, own in runs.items()
    }
    found = SweptRuns(curves, world.fixed[0])
    return found._replace(best=max(world.fixed, key=lambda each: found.ends(each).mean()))


def any_compared(results: Results, budget: Darl1nBudget) -> bool:
    """True if the runs of a world are there."""
    return any(compared(results, budget, world) is not None for world in WORLDS)


def judge_contact(results: Results, budget: Darl1nBudget) -> list[ClaimResult]:
    """Judge whether the contact distance loses little against the best fixed one."""
    worlds = WORLDS if budget.judges else ()
    return [
        _judged(world, compared(results, budget, world, beside=[CONTACT]), budget.seeds)
        for world in worlds
    ]


def _judged(world: SweptWorld, found: SweptRuns | None, seeds: int) -> ClaimResult:
    least = f"{1 - WITHIN:.0%}"
    claim = f"{world.name}: the contact distance gains at least {least} of the best fixed one's."
    if found is None:
        return undecided(claim, "not all distances have all seeds", whose=Whose.OURS)
    share = found.share(CONTACT)
    said = (
        f"{in_percent(share)}, ending at "
        f"{found.ends(CONTACT).mean():.1f} where d = {found.best} ends at "
        f"{found.ends(found.best).mean():.1f}"
    )
    strength = measured(seeds, interval=True)
    return by_interval(claim, share, 1 - WITHIN, said, strength=strength, whose=Whose.OURS)


def of_distances(results: Results, budget: Darl1nBudget) -> str:
    """Markdown table with a row for each distance in each world whose fixed ones are there."""
    lines = ["| world | d | s an iteration | at the end | share |", "|---|---|---|---|---|"]
    for world in WORLDS:
        found = compared(results, budget, world, beside=[CONTACT])
        found = found or compared(results, budget, world)
        if found is None:
            continue
        for distance, curves in found.curves.items():
            share = found.share(distance)
            pace = np.mean([curve.iteration_s for curve in curves])
            lines.append(
                f"| {world.name} | {distance} | {pace:.3f} | {found.ends(distance).mean():.1f} "
                f"| {in_percent(share)} |"
            )
    return "\n".join(lines)


def in_percent(share: Interval) -> str:
    """A share with its interval."""
    return f"{share.mean:.0%} [{share.low:.0%}, {share.high:.0%}]"
