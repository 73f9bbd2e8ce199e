"""Grace of a round: the time after which idle learners compute what late ones have not returned.

Too short a grace costs a calm round: the next one waits until the work that was begun in vain is
abandoned. Too long a one waits for machines that are late. The best one follows from the spread of
the recent rounds, each of which is played through again under every candidate; what learners did
after a round was over is not known, and they are taken not to have returned at all.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from statistics import fmean, median
from typing import NamedTuple

from fullrank.codes.base import Code
from fullrank.run.assignment import working_rows
from fullrank.runs.record import IterationRecord

FACTORS = (0.0, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0)
"""Candidates, in medians of the times at which learners of a round return."""
FIRST = 1.5
"""Factor until enough rounds are measured."""
FEWEST, RECENT = 4, 32
"""Fewest rounds from which a factor is chosen, and most."""
ABANDONED = 0.1
"""Time until work is abandoned, in units: there are some ten cancellation points within one."""


class Return(NamedTuple):
    """A learner in a round."""

    finish_s: float
    """Time from the beginning of the round to the return of its rows; infinite if they were
    missing when the round was over."""
    unit_s: float
    """Time in which it computes one unit."""
    items: int
    """Units by which others make up for its rows."""


def returns_of(record: IterationRecord, code: Code) -> tuple[list[Return], int]:
    """Return the learners of a recorded round, and how many of them decide it.

    Each row of units is made up for by one unit, which has its rank; a row of a sum by its units.
    """
    width, computed = code.rows_per_learner, record.compute_s
    shares = {learner: row // width for learner, row in record.rows.items() if row < code.rows}
    load = {learner: max(1, int(code.load[share])) for learner, share in shares.items()}
    items = load
    if code.recovers_units:
        items = {learner: len(working_rows(code, [share])) for learner, share in shares.items()}
    paces = {learner: computed[learner] / load[learner] for learner in shares.keys() & computed}
    usual_s = median(paces.values()) if paces else 0.0
    returns = [
        Return(
            finish_s=record.arrival_s.get(learner, inf),
            unit_s=paces.get(learner, usual_s),
            items=items[learner],
        )
        for learner in shares
    ]
    return returns, max(0, len(returns) - code.tolerance)


class Grace:
    """The grace of the rounds of a run."""

    def __init__(self) -> None:
        self._medians: deque[float] = deque(maxlen=RECENT)
        self._costs: deque[list[float]] = deque(maxlen=RECENT)

    def observe(self, returns: Sequence[Return], *, needed: int) -> None:
        """Take a round into account.

        Args:
            returns: Learners that held rows of the code.
            needed: Learners whose rows decide the round, the earliest ones.
        """
        deciding = sorted(returns)[:needed]
        half_s = median(each.finish_s for each in deciding) if deciding else inf
        if half_s < inf:
            self._medians.append(half_s)
            self._costs.append([_cost(deciding, factor * half_s) for factor in FACTORS])

    @property
    def seconds(self) -> float:
        """Return the grace of the next round; infinite before one is measured."""
        if not self._medians:
            return inf
        factor = FIRST
        if len(self._costs) >= FEWEST:
            means = [fmean(costs) for costs in zip(*self._costs, strict=True)]
            factor = FACTORS[means.index(min(means))]
        return factor * median(self._medians)


def _cost(deciding: Sequence[Return], grace_s: float) -> float:
    """Seconds of a round under a grace, and until work in vain is abandoned.

    Args:
        deciding: Learners whose rows decide it, by time of return.
        grace_s: The grace.
    """
    last_s = deciding[-1].finish_s
    if last_s <= grace_s:
        return last_s
    end_s, in_vain = played_through(deciding, grace_s)
    abandoned_s = ABANDONED * median(each.unit_s for each in deciding)
    return end_s + abandoned_s * in_vain


def played_through(deciding: Sequence[Return], grace_s: float) -> tuple[float, bool]:
    """Play a round in which idle learners compute for late ones, as ``ExtraRows.hedge`` has them.

    Returns:
        Time at which the last item is there, and whether a learner computes in vain by then.
    """
    items = [owner for owner, each in enumerate(deciding) for _ in range(each.items)]
    open_, held = set(range(len(items))), [1] * len(items)
    given: list[set[int]] = [set() for _ in deciding]
    events = [(each.finish_s, learner, -1) for learner, each in enumerate(deciding)]
    heapify(events)
    computing = 0
    while events:
        now_s, learner, item = heappop(events)
        if item < 0:
            open_ -= {each for each in open_ if items[each] == learner}
        else:
            open_.discard(item)
            computing -= 1
        if not open_:
            return now_s, computing > 0
        choices = open_ - given[learner]
        if now_s < grace_s:
            heappush(events, (grace_s, learner, -1))
        elif choices and now_s < inf:
            chosen = min(choices, key=lambda each: (held[each], (each - learner) % len(items)))
            held[chosen] += 1
            given[learner].add(chosen)
            heappush(events, (now_s + deciding[learner].unit_s, learner, chosen))
            computing += 1
    return inf, False
