"""Which learner takes which row: holders of a unit apart, and few units in new hands.

Minimised is first the number of failure domains that the holders of a unit have in common, then
the number of units that a learner has not computed before. Without domains to choose between, the
result is the least possible change; with them, it is the better of two descents by swaps, for the
general problem (quadratic assignment) is hard.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment

from fullrank.common.types import BoolArray, IntArray

Domain: TypeAlias = tuple[str, ...]
"""With what a learner fails, the largest first: ("zone-a", "node-3")."""


class Placement(NamedTuple):
    """Who takes which row."""

    holders: tuple[int, ...]
    """Index of the learner that takes each row."""
    shared: int
    """Failure domains in common, summed over units and pairs of their holders."""
    changed: int
    """Units that come to a learner that did not compute them before."""


def place(support: BoolArray, domains: Sequence[Domain], held: BoolArray) -> Placement:
    """Deal one row to each learner, as long as there are rows; deterministic.

    Args:
        support: Units of each row, shape (R, M).
        domains: Of each learner, at least R.
        held: Units that each learner computed before, shape (learners, M).
    """
    learners, rows = len(domains), len(support)
    padded = np.zeros((learners, support.shape[1]), np.int64)  # rows of no unit, for spares
    padded[:rows] = support
    news = padded @ ~held.T
    common = padded @ padded.T
    apart = _shared(domains)
    np.fill_diagonal(common, 0)
    starts = [linear_sum_assignment(news)[1], np.array(_interleaved(domains))]
    weight = int(news.sum()) + 1  # one domain in common outweighs every change

    def cost(holders: IntArray) -> tuple[int, int]:
        together = int((common * apart[np.ix_(holders, holders)]).sum()) // 2
        return together, int(news[np.arange(learners), holders].sum())

    ends = [_descend(start, common, apart, news, weight=weight) for start in starts]
    best = min(ends, key=cost)
    return Placement(tuple(best[:rows].tolist()), *cost(best))


def _shared(domains: Sequence[Domain]) -> IntArray:
    """Domains that each pair has in common, shape (learners, learners)."""
    count = np.zeros((len(domains), len(domains)), np.int64)
    for level in range(1, max(map(len, domains)) + 1):
        within: dict[Domain, int] = {}
        group = [within.setdefault(each[:level], len(within)) for each in domains]
        deep = np.array([len(each) >= level for each in domains])
        count += np.equal.outer(group, group) & np.logical_and.outer(deep, deep)
    return count


def _interleaved(domains: Sequence[Domain]) -> list[int]:
    """Learners in an order in which those of each domain are evenly spread."""
    order = list(range(len(domains)))
    for level in range(max(map(len, domains)), 0, -1):
        order = _spread(order, [domain[:level] for domain in domains])
    return order


def _spread(order: Sequence[int], groups: Sequence[Domain]) -> list[int]:
    sizes, seen = Counter(groups), Counter[Domain]()
    position: dict[int, float] = {}
    for each in order:
        position[each] = (seen[groups[each]] + 0.5) / sizes[groups[each]]
        seen[groups[each]] += 1
    return sorted(order, key=lambda each: position[each])


def _descend(
    holders: IntArray, common: IntArray, apart: IntArray, news: IntArray, *, weight: int
) -> IntArray:
    """Swap the two learners whose swap gains most, until none does."""
    holders = holders.copy()
    while True:
        between = apart[np.ix_(holders, holders)]
        np.fill_diagonal(between, 0)
        crossed = common @ between
        own = crossed.diagonal()
        gain = crossed + crossed.T - own[:, None] - own + 2 * common * between
        taken = news[:, holders]
        now = taken.diagonal()
        total = weight * gain + taken + taken.T - now[:, None] - now
        first, second = np.unravel_index(total.argmin(), total.shape)
        if total[first, second] >= 0:
            return holders
        holders[[first, second]] = holders[[second, first]]
