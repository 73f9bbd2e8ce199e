"""Scenarios out of the past: what of it was chance is dealt anew, what was not stays as it was.

Rare coincidences decide between codes, for example three of fifteen late at once. An iteration
that happened tells of one; where chance says who is late, it tells of all that look like it, and
where learners are late independently, all returns together tell how often several coincide.
"""

import numpy as np

from fullrank.common.types import BoolArray, IntArray
from fullrank.planning.machines import Scenarios
from fullrank.planning.traffic import Times

UNEQUAL = 3.0
"""Variance between learners over that by chance, above which some are late more than others:
beyond the 99.9th percentile for fifteen learners."""
MOST_LATE = 5.0
"""Lateness in units that counts as the most."""
INDEPENDENT = (0.6, 1.6)
"""Variance of the number of late learners over the binomial one, if they are late independently:
within three standard deviations of 1 for a hundred iterations."""


def resampled(past: Scenarios, *, count: int, draws: np.random.Generator) -> Scenarios:
    """``count`` equally likely scenarios; the pace of each learner stays its own."""
    typical_s = np.average(past.unit_s, axis=0, weights=past.weight)
    iteration = _iterations(past.weight, count, draws)[:, None]
    going = ~past.stopped
    learner = np.broadcast_to(np.arange(len(going)), (count, len(going))).copy()
    late = lateness(past)[:, going]
    if exchangeable(late, past.weight):
        if independent(late > 0, past.weight):
            iteration = draws.choice(len(past.weight), size=learner.shape, p=past.weight)
        learner[:, going] = draws.permuted(learner[:, going], axis=1)
    return Scenarios(
        weight=np.full(count, 1.0 / count),
        unit_s=(past.unit_s / typical_s)[iteration, learner] * typical_s,
        delay_s=past.delay_s[iteration, learner],
        stopped=past.stopped,
        evidence=past.evidence,
    )


def _iterations(weight: Times, count: int, draws: np.random.Generator) -> IntArray:
    """Each iteration in proportion to its weight, without more chance than needed."""
    levels = (np.arange(count) + draws.random()) / count
    picked = np.searchsorted(np.cumsum(weight), levels)
    return np.minimum(picked, len(weight) - 1).astype(np.int64)


def lateness(past: Scenarios) -> Times:
    """In coarse steps of a unit's time, shape (K, N): small differences are no lateness."""
    typical_s = np.average(past.unit_s, axis=0, weights=past.weight)
    excess_s = past.delay_s + past.unit_s - typical_s
    return np.clip(np.rint(excess_s / np.median(typical_s)), 0.0, MOST_LATE)


def exchangeable(late: Times, weight: Times) -> bool:
    """Whether chance explains how unequally late the learners were, shapes (K, N) and (K,).

    The variance of the learners' mean lateness is compared with what dealing the lateness within
    each iteration at random would give.
    """
    if late.shape[1] < 2:
        return False
    by_chance = float(weight**2 @ late.var(axis=1, ddof=1))
    return float((weight @ late).var(ddof=1)) <= UNEQUAL * by_chance


def independent(late: BoolArray, weight: Times) -> bool:
    """Whether the number of late learners varies as if each were late on its own."""
    number = late.sum(axis=1)
    mean = float(weight @ number)
    binomial = mean * (1.0 - mean / late.shape[1])
    variance = float(weight @ (number - mean) ** 2)
    least, most = INDEPENDENT
    return bool(least * binomial <= variance <= most * binomial)
