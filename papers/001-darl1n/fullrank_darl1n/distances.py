"""The neighbour distance d of DARL1N: Fig. 6, and the contact distance, ours after Sec. VII.

Fig. 6 has costs and gains of d in Grassland with 6 agents; grass pays 10 and an adversary's touch
costs 100. The paper does not print its distances. For the contact distance, the smallest team
trains in each world with each distance from the same seeds. The best fixed distance is the one with
the highest mean end, which counts in its favour.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.common.types import Array
from fullrank_darl1n.published import DARL1N, FOOD, GRASSLAND, Darl1nScale, Darl1nTask
from fullrank_darl1n.runs import LearningCurve, mean_curve
from fullrank_darl1n.trials import Trial
from fullrank_papers.cells import Results
from fullrank_papers.claims import (
    ClaimResult,
    Whose,
    by_samples,
    interval,
    undecided,
)
from fullrank_papers.paper import table

DISTANCES = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Neighbour distances d; the world is 3 wide."""
REWARDS = {"grass_reward": 10.0, "contact_cost": 100.0}

Distance: TypeAlias = float | str

CONTACT, DEFAULT = "contact", "default"
AROUND = (0.1, DEFAULT, 0.4)
"""The authors' distance of a team, one below and one above it."""
WITHIN = 0.05
"""Share of the best fixed distance's gain that the contact distance may lose."""
LAST = 1 / 3
"""Share of the iterations whose evaluations make the end of a run."""


def fig6_trials(
    scale: Darl1nScale, distance: float, seeds: Sequence[int] | None = None
) -> list[Trial]:
    """One trial for each seed, by default of those whose runs are timed."""
    return [
        Trial(
            task=GRASSLAND,
            size=GRASSLAND.sizes[0],
            method=DARL1N,
            scale=scale,
            seed=seed,
            changes={"distance": distance, **REWARDS},
        )
        for seed in seeds or scale.seeds
    ]


def fig6_curves(results: Results, scale: Darl1nScale) -> list[LearningCurve]:
    """Mean curve over the seeds for each distance; empty unless all runs are there."""
    runs = [fig6_trials(scale, distance) for distance in DISTANCES]
    if not all(trial.name in results for own in runs for trial in own):
        return []
    return [mean_curve([results[trial.name] for trial in own]) for own in runs]


def judge_distances(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge Fig. 6 by the smallest and the largest distance.

    Runs of ``more_seeds`` tell returns alone: they were made beside other work.
    """
    pace = _rise(results, scale, scale.seeds, lambda curve: 1e3 * curve.iteration_s)
    rise = _rise(results, scale, scale.most_seeds, lambda curve: curve.end)
    ends = f"between d = {DISTANCES[0]} and {DISTANCES[-1]}"
    return [
        by_samples("The time of an iteration rises with d.", {"": pace}, said=f"ms, {ends}"),
        by_samples("The return rises with d.", {"": rise}, said=f"of return, {ends}"),
    ]


def _rise(
    results: Results,
    scale: Darl1nScale,
    seeds: Sequence[int],
    value: Callable[[LearningCurve], float],
) -> Array:
    """Values of the largest distance less those of the smallest, shape (seeds,)."""
    ends = [
        [value(mean_curve([results[each.name]])) for each in fig6_trials(scale, at, seeds)]
        for at in (DISTANCES[0], DISTANCES[-1])
    ]
    rise: Array = np.diff(ends, axis=0)[0]
    return rise


def fig6_table(results: Results, scale: Darl1nScale) -> str:
    """A row for each distance."""
    swept = zip(DISTANCES, fig6_curves(results, scale), strict=True)
    rows = ([d, f"{curve.iteration_s:.3f}", f"{curve.end:.1f}"] for d, curve in swept)
    return table(["d", "s an iteration", "return at the end"], rows)


class SweptWorld(NamedTuple):
    """A task, and the fixed distances that are compared in it."""

    name: str
    task: Darl1nTask
    fixed: tuple[Distance, ...] = AROUND
    rewards: Mapping[str, float] = {}

    def trials(self, scale: Darl1nScale, distance: Distance) -> list[Trial]:
        """One run for each seed; none where the scale has too few to judge means."""
        changes = self.rewards if distance == DEFAULT else {"distance": distance, **self.rewards}
        return [
            Trial(
                task=self.task,
                size=self.task.sizes[0],
                method=DARL1N,
                scale=scale,
                seed=seed,
                changes=changes,
            )
            for seed in (scale.most_seeds if scale.judges else ())
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

    def share(self, distance: Distance) -> Array:
        """Gain of a distance in % of the best fixed one's, shape (seeds,)."""
        return self.share_of(self.ends(distance))

    def share_of(self, ends: Array) -> Array:
        """Gain of runs that end so, shape (seeds,), by paired differences of the seeds."""
        best = self.ends(self.best)
        begin = np.mean([curve.returns[0] for curve in self.curves[self.best]])
        share: Array = 100 * (1 + (ends - best) / float(best.mean() - begin))
        return share


def contact_trials(scale: Darl1nScale) -> list[Trial]:
    """All runs of the comparison."""
    return [
        trial
        for world in WORLDS
        for distance in (CONTACT, *world.fixed)
        for trial in world.trials(scale, distance)
    ]


def compared(
    results: Results, scale: Darl1nScale, world: SweptWorld, *, beside: Sequence[Distance] = ()
) -> SweptRuns | None:
    """The runs of a world's fixed distances and of those beside; None unless all are there."""
    runs = {distance: world.trials(scale, distance) for distance in (*beside, *world.fixed)}
    if not scale.judges or any(run.name not in results for own in runs.values() for run in own):
        return None
    curves = {
        distance: [mean_curve([results[run.name]]) for run in own] for distance, own in runs.items()
    }
    found = SweptRuns(curves, world.fixed[0])
    return found._replace(best=max(world.fixed, key=lambda each: found.ends(each).mean()))


def judge_contact(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge whether the contact distance loses little against the best fixed one."""
    worlds = WORLDS if scale.judges else ()
    return [_judged(world, compared(results, scale, world, beside=[CONTACT])) for world in worlds]


def _judged(world: SweptWorld, found: SweptRuns | None) -> ClaimResult:
    least = f"{1 - WITHIN:.0%}"
    claim = f"{world.name}: the contact distance gains at least {least} of the best fixed one's."
    if found is None:
        return undecided(claim, "not all distances have all seeds", whose=Whose.OURS)
    said = (
        f"%, ends at {found.ends(CONTACT).mean():.1f}, d = {found.best} at "
        f"{found.ends(found.best).mean():.1f}"
    )
    shares = {"": found.share(CONTACT)}
    return by_samples(claim, shares, low=100 * (1 - WITHIN), whose=Whose.OURS, said=said)


def contact_table(results: Results, scale: Darl1nScale) -> str:
    """A row for each distance in each world whose fixed ones are there."""
    rows = []
    for world in WORLDS:
        found = compared(results, scale, world, beside=[CONTACT])
        found = found or compared(results, scale, world)
        if found is None:
            continue
        for distance, curves in found.curves.items():
            pace = np.mean([curve.iteration_s for curve in curves])
            end, share = found.ends(distance).mean(), in_percent(found.share(distance))
            rows.append([world.name, distance, f"{pace:.3f}", f"{end:.1f}", share])
    return table(["world", "d", "s an iteration", "at the end", "share"], rows)


def in_percent(shares: Array) -> str:
    """Shares with their interval."""
    share = interval(shares)
    return f"{share.mean:.0f}% [{share.low:.0f}%, {share.high:.0f}%]"
