"""The neighbour distance d of DARL1N: Fig. 6, and our ways of choosing it, after Sec. VII.

Fig. 6 has costs and gains of d in Grassland with 6 agents; grass pays 10 and an adversary's touch
costs 100. The paper does not print its distances. For the contact distance, the smallest team
trains in each world with each distance from the same seeds. The best fixed distance is the one with
the highest mean end, which counts in its favour.

By successive halving [Jamieson16] the better half of several distances' runs goes on, and so on.
The source spends as much before every rung, so that the first comes early, and drops the last but
one at the end. Here rungs are evenly spaced: learning curves cross late (ADR 94). A halved run
equals, bit for bit, the run with the distance that it ends with: choices and ends follow from the
curves of the fixed distances.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from fullrank.common.types import Array
from fullrank_darl1n.published import DARL1N, FOOD, GRASSLAND, Darl1nScale, Darl1nTask, TeamSpec
from fullrank_darl1n.runs import LearningCurve, mean_curve, trial
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
ENDS = (DISTANCES[0], DISTANCES[-1])
"""The smallest and the largest, by which Fig. 6 is judged."""
FIGURE = "Fig. 6"
REWARDS = {"grass_reward": 10.0, "contact_cost": 100.0}

Distance: TypeAlias = float | str

CONTACT, DEFAULT = "contact", "default"
AROUND = (0.1, DEFAULT, 0.4)
"""The authors' distance of a team, one below and one above it."""
WITHIN = 0.05
"""Share of the best fixed distance's gain that the contact distance may lose."""
LAST = 1 / 3
"""Share of the iterations whose evaluations make the end of a run."""


def _trials(
    scale: Darl1nScale,
    task: Darl1nTask,
    changes: Mapping[str, Distance],
    seeds: Sequence[int],
) -> list[Trial]:
    """Runs of the smallest team of a task in a changed world, one for each seed."""
    team = TeamSpec(task, task.sizes[0])
    return [replace(trial(scale, team, DARL1N, seed), changes=changes) for seed in seeds]


def fig6_trials(
    scale: Darl1nScale, distance: float, seeds: Sequence[int] | None = None
) -> list[Trial]:
    """One trial for each seed, by default of those whose runs are timed."""
    return _trials(scale, GRASSLAND, {"distance": distance, **REWARDS}, seeds or scale.seeds)


def fig6_curves(results: Results, scale: Darl1nScale) -> list[LearningCurve]:
    """Mean curve over the seeds for each distance; empty unless all runs are there."""
    runs = [fig6_trials(scale, distance) for distance in DISTANCES]
    if not all(each.name in results for own in runs for each in own):
        return []
    return [mean_curve([results[each.name] for each in own]) for own in runs]


def judge_distances(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge Fig. 6 by the smallest and the largest distance.

    Runs of more seeds tell returns alone: they were made beside other work.
    """
    pace = _rise(results, scale, scale.seeds, lambda curve: 1e3 * curve.iteration_s)
    rise = _rise(results, scale, scale.swept_seeds(FIGURE), lambda curve: curve.end)
    ends = "between d = {} and {}".format(*ENDS)
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
        for at in ENDS
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
        return _trials(scale, self.task, changes, self.seeds(scale) if scale.judges else ())

    def seeds(self, scale: Darl1nScale) -> tuple[int, ...]:
        """Seeds by which its distances are compared."""
        return scale.swept_seeds(self.name)


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
        """Gain of a distance in % of the best fixed one's, shape (seeds,), by paired ends."""
        best = self.ends(self.best)
        begin = np.mean([curve.returns[0] for curve in self.curves[self.best]])
        share: Array = 100 * (1 + (self.ends(distance) - best) / float(best.mean() - begin))
        return share


def contact_trials(scale: Darl1nScale) -> list[Trial]:
    """All runs of the comparison."""
    return [
        run
        for world in WORLDS
        for distance in (CONTACT, *world.fixed)
        for run in world.trials(scale, distance)
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

    def told(found: SweptRuns) -> tuple[Array, str]:
        own, best = (f"{found.ends(each).mean():.1f}" for each in (CONTACT, found.best))
        return found.share(CONTACT), f"%, ends at {own}, d = {found.best} at {best}"

    claim = f"the contact distance gains {1 - WITHIN:.0%} of the best fixed one's."
    return [
        _loses_little(
            f"{world.name}: {claim}", compared(results, scale, world, beside=[CONTACT]), told
        )
        for world in (WORLDS if scale.judges else ())
    ]


def _loses_little(
    claim: str,
    found: SweptRuns | None,
    told: Callable[[SweptRuns], tuple[Array, str]],
    unit: str = "seeds",
) -> ClaimResult:
    """Judge shares of the best fixed distance's gain, which are told with a remark."""
    if found is None:
        return undecided(claim, "not all distances have all seeds", whose=Whose.OURS)
    shares, said = told(found)
    low = 100 * (1 - WITHIN)
    return by_samples(claim, {"": shares}, low=low, whose=Whose.OURS, unit=unit, said=said)


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


AVERAGED = 4
"""Number of evaluations, the last ones before a rung, whose mean return decides there."""
JUDGED = "whole run"
SPANS = {JUDGED: (0.0, 1.0), "first half": (0.0, 0.5), "second half": (0.5, 1.0)}
"""Parts of a run over which rungs are evenly spaced, as shares of its iterations."""
ALONE, TOGETHER = "each seed alone", "eight seeds' mean"
WAYS = {ALONE: 1, TOGETHER: 8}
"""Most seeds whose returns decide together at a rung."""

T = TypeVar("T", bound=Hashable)


def rungs_of(candidates: int, *, iterations: int) -> tuple[int, ...]:
    """The iterations, evenly spaced, at which half of the candidates are dropped till one is left.

    Args:
        candidates: Number of candidates.
        iterations: Iterations of a whole run.
    """
    count = (candidates - 1).bit_length()
    return tuple(iterations * k // (count + 1) for k in range(1, count + 1))


def averaged(rung: int, *, every: int) -> list[int]:
    """Iterations of the evaluations that decide at a rung; the rung's own if none is before it."""
    return list(range(every, rung + 1, every))[-AVERAGED:] or [rung]


def halve(
    candidates: Sequence[T],
    rungs: Sequence[int],
    *,
    iterations: int,
    score: Callable[[T, int], float],
) -> tuple[T, float]:
    """Keep the better half of the candidates, rounded up, at each rung; of equals the first.

    Args:
        candidates: The candidates.
        rungs: Iterations of the rungs, ascending.
        iterations: Iterations of a whole run.
        score: Mean return of a candidate at a rung.

    Returns:
        The first of those that are left, and the iterations of all once it has trained to the end,
        in multiples of those of one whole run.
    """
    left, trained, spent = tuple(candidates), 0, 0
    for iteration in rungs:
        spent += len(left) * (iteration - trained)
        returns = {each: score(each, iteration) for each in left}
        best = sorted(left, key=returns.__getitem__, reverse=True)[: (len(left) + 1) // 2]
        left, trained = tuple(each for each in left if each in best), iteration
    return left[0], (spent + iterations - trained) / iterations


class Halved(NamedTuple):
    """Choices by halving in one world."""

    distances: tuple[Distance, ...]
    """The choice of each group of seeds."""
    cost: float
    """Iterations of all runs of a seed, in multiples of one run."""
    share: Array
    """Mean gain of each group in % of the best fixed distance's, shape (groups,)."""

    @property
    def said(self) -> str:
        """The choices with their numbers; one without if they are equal."""
        counts = Counter(self.distances).most_common()
        if len(counts) == 1:
            return str(counts[0][0])
        return ", ".join(f"{distance} ({count})" for distance, count in counts)


def halved(
    found: SweptRuns, world: SweptWorld, scale: Darl1nScale, *, by: str, span: str
) -> Halved:
    """Halve the fixed distances of a world, by the mean returns of each group of seeds.

    Seeds that fill no group are left out.
    """
    first = world.trials(scale, world.fixed[0])[0]
    seeds = range(len(found.curves[world.fixed[0]]))
    size = min(WAYS[by], len(seeds))
    begin, end = (int(share * first.iterations) for share in SPANS[span])
    rungs = [begin + rung for rung in rungs_of(len(world.fixed), iterations=end - begin)]
    groups = [seeds[at : at + size] for at in range(0, len(seeds) - size + 1, size)]

    def score(distance: Distance, rung: int) -> float:
        curves = [found.curves[distance][seed] for seed in group]
        wanted = np.isin(curves[0].iterations, averaged(rung, every=first.every))
        return float(np.mean([curve.returns[wanted] for curve in curves]))

    chosen, shares, cost = list[Distance](), list[float](), 0.0
    for group in groups:
        winner, cost = halve(world.fixed, rungs, iterations=first.iterations, score=score)
        chosen.append(winner)
        shares.append(float(found.share(winner)[group].mean()))
    return Halved(tuple(chosen), cost, np.array(shares))


def judge_halving(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge whether a halved run ends as well as the best fixed distance.

    A choice by several seeds is one sample, however many end with it.
    """

    def judged(world: SweptWorld, by: str) -> ClaimResult:
        def told(found: SweptRuns) -> tuple[Array, str]:
            result = halved(found, world, scale, by=by, span=JUDGED)
            said = f"%, d = {result.said}, {result.cost:.1f} runs of {len(world.fixed)}"
            return result.share, said

        claim = f"{world.name}: halving by {by} gains {1 - WITHIN:.0%} of the best fixed one's."
        unit = "seeds" if WAYS[by] == 1 else f"choice(s) by {WAYS[by]} seeds"
        return _loses_little(claim, compared(results, scale, world), told, unit=unit)

    worlds = WORLDS if scale.judges else ()
    return [judged(world, by) for world in worlds for by in WAYS]


def halving_table(results: Results, scale: Darl1nScale) -> str:
    """A row for each placing of rungs in each world whose runs are there."""
    rows = []
    for world in WORLDS:
        found = compared(results, scale, world)
        if found is None:
            continue
        for span in SPANS:
            chosen = [halved(found, world, scale, by=by, span=span) for by in WAYS]
            told = (text for each in chosen for text in (each.said, in_percent(each.share)))
            rows.append([world.name, span, f"{chosen[0].cost:.1f}", *told])
    heads = ("world", "rungs", "runs", f"{ALONE}: d", "share", f"{TOGETHER}: d", "share")
    return table(heads, rows)
