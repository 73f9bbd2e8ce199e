"""Grace of a round: the time after which idle learners compute what late ones have not returned.

Too short a grace costs a calm round: the next one waits until the work that was begun in vain is
abandoned. Too long a one waits for machines that are late. The best one follows from the spread of
the recent rounds, each of which is played through again under every candidate; what learners did
after a round was over is not known, and they are taken not to have returned at all.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import inf
from statistics import fmean, median
from typing import NamedTuple

from fullrank.codes.base import Code
from fullrank.common.types import IntArray, Times
from fullrank.run.assignment import working_rows
from fullrank.runs.record import IterationRecord

FACTORS = (0.0, 1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 5.0)
"""Candidates, in medians of the times at which learners of a round return."""
FIRST = 1.5
"""Factor until enough rounds are measured; without any, of the median of the round itself."""
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
    """Time from an order of one more unit to its return."""
    items: int
    """Units by which others make up for its rows."""


def items_of(code: Code) -> list[int]:
    """Units by which others make up for each share.

    Each row of units is made up for by one unit, which has its rank; a row of a sum by its units.
    """
    if code.recovers_units:
        return [len(working_rows(code, [share])) for share in range(code.learners)]
    return [int(load) for load in code.load]


def returns_of(record: IterationRecord, code: Code) -> tuple[list[Return], int]:
    """Return the learners of a recorded round, and how many of them decide it.

    Learners without a row of the code are among them: they are idle from the beginning. An order
    and its return take as long on their way as those of the learner that took least besides its
    units: what others took longer may be a delay before their first unit.
    """
    width, computed = code.rows_per_learner, record.compute_s
    ways = [record.arrival_s[each] - computed[each] for each in record.arrival_s.keys() & computed]
    way_s = max(0.0, min(ways, default=0.0))
    shares = {learner: row // width for learner, row in record.rows.items() if row < code.rows}
    load = {learner: max(1, int(code.load[share])) for learner, share in shares.items()}
    paces = {learner: computed[learner] / load[learner] for learner in shares.keys() & computed}
    usual_s = median(paces.values()) if paces else 0.0
    items = items_of(code)
    returns = [
        Return(
            finish_s=record.arrival_s.get(learner, inf),
            unit_s=way_s + paces.get(learner, usual_s),
            items=items[share],
        )
        for learner, share in shares.items()
    ]
    spares = [Return(finish_s=0.0, unit_s=way_s + usual_s, items=0)] * items.count(0)
    return returns + spares, max(0, len(returns) - code.tolerance) + len(spares)


def deciding_returns(
    code: Code,
    finish: Times | IntArray,
    unit: Times | IntArray,
    *,
    order: IntArray,
    needed: IntArray,
) -> Iterator[list[Return]]:
    """Return the learners that decide each of K rounds whose times are known, by time of return.

    Args:
        code: C and the learners of its rows.
        finish: Time of return of each learner; of one without a row, when it is idle, shape (K, N).
        unit: Time in which it computes one unit for another, shape (K, N).
        order: Learners with a row in order of arrival, shape (K, n).
        needed: Number of arrivals that decide each round, shape (K,).
    """
    items = items_of(code)
    spares = [learner for learner, count in enumerate(items) if not count]
    for finishes, units, arrived, count in zip(
        finish.tolist(), unit.tolist(), order.tolist(), needed.tolist(), strict=True
    ):
        chosen = [*arrived[:count], *spares]
        yield sorted(Return(finishes[each], units[each], items[each]) for each in chosen)


def first_grace(arrivals: Collection[float], learners: int) -> float:
    """Return the grace of a round before which none was measured, from its own returns.

    Args:
        arrivals: Times of the learners that have returned.
        learners: Number of those that hold a row.

    Returns:
        ``FIRST`` medians of all returns; infinite until half of the learners have returned.
    """
    half = -(-learners // 2)
    return FIRST * sorted(arrivals)[half - 1] if len(arrivals) >= half else inf


class Grace:
    """The grace of the rounds of a run."""

    def __init__(self) -> None:
        self._medians: deque[float] = deque(maxlen=RECENT)
        self._costs: deque[list[float]] = deque(maxlen=RECENT)

    def observe(self, returns: Sequence[Return], *, needed: int) -> None:
        """Take a round into account.

        Args:
            returns: Learners that held rows of the code, and idle ones.
            needed: Learners that decide the round, the earliest ones.
        """
        deciding = sorted(returns)[:needed]
        half_s = median([each.finish_s for each in deciding if each.items] or [inf])
        if half_s < inf:
            self._medians.append(half_s)
            self._costs.append([_cost(deciding, factor * half_s) for factor in FACTORS])

    def play(self, returns: Sequence[Return]) -> float:
        """Play a round in virtual time, and learn from it what a controller would see.

        Args:
            returns: Learners that decide it, by time of return, those that are late included.

        Returns:
            Time at which it ends.
        """
        grace_s = self.seconds
        if grace_s == inf:
            own = [each.finish_s for each in returns if each.items]
            grace_s = first_grace([each for each in own if each < inf], len(own))
        end_s, _ = played_through(returns, grace_s)
        seen = [each if each.finish_s <= end_s else each._replace(finish_s=inf) for each in returns]
        self.observe(seen, needed=len(seen))
        return end_s

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
        deciding: Learners that decide it, by time of return.
        grace_s: The grace.
    """
    end_s, in_vain = played_through(deciding, grace_s)
    if not in_vain:
        return end_s
    return end_s + ABANDONED * median(each.unit_s for each in deciding)


def played_through(deciding: Sequence[Return], grace_s: float) -> tuple[float, bool]:
    """Play a round in which idle learners compute for late ones, as ``ExtraRows.hedge`` has them.

    Args:
        deciding: Learners that decide it, by time of return.
        grace_s: The grace.

    Returns:
        Time at which the last item is there, and whether a learner computes in vain by then.
    """
    last_s = max((each.finish_s for each in deciding if each.items), default=0.0)
    if last_s <= grace_s:
        return last_s, False
    ends = list(accumulate(each.items for each in deciding))
    own = [range(end - each.items, end) for end, each in zip(ends, deciding, strict=True)]
    is_late = [each.finish_s > grace_s for each in deciding]
    open_ = {item for late, items in zip(is_late, own, strict=True) if late for item in items}
    held = [1] * ends[-1]
    given: list[set[int]] = [set() for _ in deciding]
    events = [(max(each.finish_s, grace_s), learner, -1) for learner, each in enumerate(deciding)]
    computing = 0
    while events:
        now_s, learner, item = heappop(events)
        if item >= 0:
            open_.discard(item)
            computing -= 1
        elif is_late[learner]:
            open_.difference_update(own[learner])
        if not open_:
            return now_s, computing > 0
        choices = open_ - given[learner]
        if choices and now_s < inf:
            chosen = min(choices, key=lambda each: (held[each], (each - learner) % len(held)))
            held[chosen] += 1
            given[learner].add(chosen)
            heappush(events, (now_s + deciding[learner].unit_s, learner, chosen))
            computing += 1
    return inf, False
