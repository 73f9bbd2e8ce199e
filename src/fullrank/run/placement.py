"""Placement of shares: holders of a unit in different failure domains, and few units moved.

The first objective is the number of failure domains that the holders of a unit share, the second
the number of units that a learner has not computed before. Without domains to choose between, the
result is the least possible change; with them, it is the better of two descents by swaps, because
the general problem (quadratic assignment) is hard.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.common.types import BoolArray, IntArray

Domain: TypeAlias = tuple[str, ...]
"""Failure domains of a learner, the largest first: ("zone-a", "node-3")."""


class Placement(NamedTuple):
    """Learners of the shares, with the costs of their choice."""

    holders: tuple[int, ...]
    """Index of the learner that holds each share."""
    shared: int
    """Shared failure domains, summed over units and pairs of their holders."""
    changed: int
    """Units that move to a learner that did not compute them before."""


def place(support: BoolArray, domains: Sequence[Domain], held: BoolArray) -> Placement:
    """Place each share on a learner of its own; deterministic.

    Args:
        support: True where a row of the share combines a unit, shape (shares, M).
        domains: Failure domains of each learner; at least as many as shares.
        held: True where a learner computed a unit before, shape (learners, M).
    """
    learners, rows = len(domains), len(support)
    padded = np.zeros((learners, support.shape[1]), np.int64)  # spares hold rows of no unit
    padded[:rows] = support
    news = padded @ ~held.T
    common = padded @ padded.T
    apart = _shared(domains)
    np.fill_diagonal(common, 0)
    starts = [_least_change(news), np.array(_interleaved(domains))]
    weight = int(news.sum()) + 1  # one shared domain outweighs every change

    def cost(holders: IntArray) -> tuple[int, int]:
        together = int((common * apart[np.ix_(holders, holders)]).sum()) // 2
        return together, int(news[np.arange(learners), holders].sum())

    ends = [_descend(start, common, apart, news, weight=weight) for start in starts]
    best = min(ends, key=cost)
    return Placement(tuple(best[:rows].tolist()), *cost(best))


def _least_change(news: IntArray) -> IntArray:
    """Return the learner of each row, so that the sum of the entries chosen is least."""
    if (news == news[:, :1]).all():  # as at the start of a run
        return np.arange(len(news))
    from scipy.optimize import linear_sum_assignment  # large, and seldom needed

    chosen: IntArray = linear_sum_assignment(news)[1]
    return chosen


def _shared(domains: Sequence[Domain]) -> IntArray:
    """Number of domains that each pair of learners shares, shape (learners, learners)."""
    count = np.zeros((len(domains), len(domains)), np.int64)
    for level in range(1, max(map(len, domains)) + 1):
        within: dict[Domain, int] = {}
        group = [within.setdefault(domain[:level], len(within)) for domain in domains]
        deep = np.array([len(domain) >= level for domain in domains])
        count += np.equal.outer(group, group) & np.logical_and.outer(deep, deep)
    return count


def _interleaved(domains: Sequence[Domain]) -> list[int]:
    """Learners in an order in which each domain is evenly spread."""
    order = list(range(len(domains)))
    for level in range(max(map(len, domains)), 0, -1):
        order = _spread(order, [domain[:level] for domain in domains])
    return order


def _spread(order: Sequence[int], groups: Sequence[Domain]) -> list[int]:
    sizes, placed = Counter(groups), Counter[Domain]()
    position: dict[int, float] = {}
    for learner in order:
        group = groups[learner]
        position[learner] = (placed[group] + 0.5) / sizes[group]
        placed[group] += 1
    return sorted(order, key=lambda learner: position[learner])


def _descend(
    holders: IntArray, common: IntArray, apart: IntArray, news: IntArray, *, weight: int
) -> IntArray:
    """Swap the two learners whose swap gains most, until no swap gains."""
    holders = holders.copy()
    while True:
        between = apart[np.ix_(holders, holders)]
        np.fill_diagonal(between, 0)
        crossed = common @ between
        unchanged = crossed.diagonal()
        gain = crossed + crossed.T - unchanged[:, None] - unchanged + 2 * common * between
        taken = news[:, holders]
        now = taken.diagonal()
        total = weight * gain + taken + taken.T - now[:, None] - now
        first, second = np.unravel_index(total.argmin(), total.shape)
        if total[first, second] >= 0:
            return holders
        holders[[first, second]] = holders[[second, first]]
