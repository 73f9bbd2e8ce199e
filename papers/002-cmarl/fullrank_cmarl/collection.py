"""Claim C11: collection by several containers of 13 actors in equal time, on real services.

Steps of the game take an emulated time, so that two cores stand for many game processes. Collectors
of 13 copies play and hand over as containers do, and do not learn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from fullrank.common.types import JSON
from fullrank.config.tree import RunConfig
from fullrank.runs.record import IterationRecord
from fullrank_papers.cells import Cell, Results
from fullrank_papers.claims import ClaimResult, Strength, judge, untested
from fullrank_papers.runs import configured, observe

ACTORS: Final = 13
CONTAINERS: Final = (1, 2, 3)
LEAST_SHARE: Final = 0.9
"""Asked share of what so many containers would collect if each were alone."""
SETTLING: Final = 2
"""Iterations that are not counted."""
SMALL: Final = (
    *("algorithm.name=qmix", "algorithm.batch_size=4", "algorithm.hidden=16"),
    *("algorithm.micro_batches=1", "environment.name=smac_lite", "environment.map=3m"),
    *("learners=1", "code.name=uncoded", "audit.every=0", "checkpoint.every=1000000"),
    *("collect.max_lag=1000000", "metrics.sinks=[]"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Collectors, and the actors of each."""

    collectors: int
    actors: int

    def settings(self, *, step_s: float, iterations: int) -> list[str]:
        """Return the settings of a run whose collectors never wait for the learner.

        Args:
            step_s: Emulated time of a step.
            iterations: Iterations that are counted, each of one episode of every actor.
        """
        actors = self.collectors * self.actors
        return [
            *SMALL,
            f"collectors.count={self.collectors}",
            f"collect.block={self.actors}",
            f"environment.copies={actors}",
            f"collect.warmup_episodes={actors}",
            f"collect.window={100 * actors}",
            f"compute.emulate_step_s={step_s}",
            f"iterations={SETTLING + iterations}",
        ]

    def config(self, *, step_s: float, iterations: int) -> RunConfig:
        """Return the configuration of such a run."""
        return configured(*self.settings(step_s=step_s, iterations=iterations), topology="awl")


def episodes_per_s(seen: Sequence[tuple[float, IterationRecord]]) -> float:
    """Return the episodes that were stored in a second after the first iterations.

    Args:
        seen: Iterations with when each was seen, in seconds.
    """
    (began_s, first), (ended_s, last) = seen[SETTLING - 1], seen[-1]
    counts = [each.statistics["episodes"] or 0.0 for each in (first, last)]
    return (counts[1] - counts[0]) / (ended_s - began_s)


def cell_name(containers: int) -> str:
    """The name of a cell."""
    return f"collection-{containers}"


def cells(*, step_s: float, iterations: int) -> list[Cell]:
    """Episodes a second of one, two and three collectors of 13 copies.

    Args:
        step_s: Emulated time of a step.
        iterations: Counted iterations of each.
    """
    made = []
    for containers in CONTAINERS:
        fleet = Fleet(collectors=containers, actors=ACTORS)
        settings = fleet.settings(step_s=step_s, iterations=iterations)
        made.append(
            Cell(
                name=cell_name(containers),
                settings={"settings": settings},
                compute=partial(_collected, fleet, step_s, iterations),
                weight=60.0 * step_s * iterations,
            )
        )
    return made


def _collected(fleet: Fleet, step_s: float, iterations: int) -> JSON:
    seen = observe(fleet.config(step_s=step_s, iterations=iterations))
    return {"episodes_per_s": episodes_per_s(seen)}


def rates(results: Results) -> list[float]:
    """Return the episodes a second by number of containers, those that were measured."""
    names = (cell_name(containers) for containers in CONTAINERS)
    return [results[name]["episodes_per_s"] for name in names if name in results]


def judge_collection(results: Results) -> ClaimResult:
    """Judge claim C11."""
    claim = "C11: collection grows with the number of containers."
    found = rates(results)
    if len(found) < len(CONTAINERS):
        return untested(claim, "not judged: `--only services` measures it")
    shares = [rate / (count * found[0]) for count, rate in zip(CONTAINERS, found, strict=True)]
    said = ", ".join(
        f"{count}: {rate:.1f}/s, {share:.0%}"
        for count, rate, share in zip(CONTAINERS, found, shares, strict=True)
    )
    said = f"episodes by containers, and as a share of linear growth: {said} (asked: 90 %)"
    return judge(
        claim,
        [said] if min(shares) < LEAST_SHARE else [],
        grounds=said,
        strength=Strength("measured on services, emulated steps; collectors that do not learn"),
    )
