"""A distance chosen by successive halving [Jamieson16], ours after [DARL1N, Sec. VII].

Of several distances' runs the better half goes on, and so on. The source spends as much before
every rung, so that the first comes early, and drops the last but one at the end. Here rungs are
evenly spaced: learning curves cross late (ADR 94). A halved run equals, bit for bit, the run with
the distance that it ends with: choices and ends follow from the curves of the fixed distances.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fullrank.common.types import Array
from fullrank_darl1n.distances import (
    WITHIN,
    WORLDS,
    Distance,
    SweptRuns,
    SweptWorld,
    compared,
    in_percent,
)
from fullrank_darl1n.published import Darl1nScale
from fullrank_papers.cells import Results
from fullrank_papers.claims import ClaimResult, Whose, by_samples, undecided
from fullrank_papers.paper import table

AVERAGED = 4
"""Number of evaluations, the last ones before a rung, whose mean return decides there."""
JUDGED = "whole run"
SPANS = {JUDGED: (0.0, 1.0), "first half": (0.0, 0.5), "second half": (0.5, 1.0)}
"""Parts of a run over which rungs are evenly spaced, as shares of its iterations."""
WAYS = ALONE, TOGETHER = "each seed alone", "the mean of the seeds"
"""Returns that decide at a rung."""

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung(Generic[T]):
    """The decision at a rung."""

    iteration: int
    """Iterations that each candidate has trained."""
    returns: Mapping[T, float]
    """Mean return of the last evaluations of each candidate."""
    kept: tuple[T, ...]
    dropped: tuple[T, ...]
    cost: float
    """Iterations of all candidates so far, in multiples of those of one whole run."""

    def whole_cost(self, iterations: int) -> float:
        """The cost once the one candidate that is left has trained to the end."""
        return (self.cost * iterations + iterations - self.iteration) / iterations


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
) -> Iterator[Rung[T]]:
    """Keep the better half of the candidates, rounded up, at each rung; of equals the first.

    Args:
        candidates: The candidates.
        rungs: Iterations of the rungs, ascending.
        iterations: Iterations of a whole run.
        score: Mean return of a candidate at a rung.
    """
    left, trained, spent = tuple(candidates), 0, 0
    for iteration in rungs:
        spent += len(left) * (iteration - trained)
        returns = {each: score(each, iteration) for each in left}
        best = sorted(left, key=lambda each: -returns[each])[: (len(left) + 1) // 2]
        dropped = tuple(each for each in left if each not in best)
        left, trained = tuple(each for each in left if each in best), iteration
        yield Rung(
            iteration=iteration,
            returns=returns,
            kept=left,
            dropped=dropped,
            cost=spent / iterations,
        )


class Halved(NamedTuple):
    """Choices by halving in one world."""

    distances: tuple[Distance, ...]
    """The choice for each seed."""
    cost: float
    """Iterations of all runs of a seed, in multiples of one run."""
    share: Array
    """Gain of each seed in % of the best fixed distance's."""

    @property
    def said(self) -> str:
        """The choices; one if they are equal."""
        alike = len(set(self.distances)) == 1
        return ", ".join(map(str, self.distances[:1] if alike else self.distances))


def halved(
    found: SweptRuns, world: SweptWorld, scale: Darl1nScale, *, by: str, span: str
) -> Halved:
    """Halve the fixed distances of a world, by each seed's returns or by their mean."""
    trial = world.trials(scale, world.fixed[0])[0]
    seeds = range(len(found.curves[world.fixed[0]]))
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


def judge_halving(results: Results, scale: Darl1nScale) -> list[ClaimResult]:
    """Judge whether a halved run ends as well as the best fixed distance."""
    worlds = WORLDS if scale.judges else ()
    return [
        _judged(world, compared(results, scale, world), scale, by)
        for world in worlds
        for by in WAYS
    ]


def _judged(world: SweptWorld, found: SweptRuns | None, scale: Darl1nScale, by: str) -> ClaimResult:
    claim = f"{world.name}: halving by {by} gains {1 - WITHIN:.0%} of the best fixed distance's."
    if found is None:
        return undecided(claim, "not all distances have all seeds", whose=Whose.OURS)
    result = halved(found, world, scale, by=by, span=JUDGED)
    said = f"%, d = {result.said}, {result.cost:.1f} runs of {len(world.fixed)}"
    shares = {"": result.share}
    return by_samples(claim, shares, low=100 * (1 - WITHIN), whose=Whose.OURS, said=said)


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
