"""Resample past iterations, preserving systematic differences between learners.

Rare coincidences decide between codes, for example three of fifteen learners late at once, and a
past iteration shows one of them. Where the late learners are random, each iteration stands for all
its permutations; where learners are late independently, returns of all iterations are combined.
"""

import numpy as np

from fullrank.common.types import BoolArray, IntArray, Times
from fullrank.planning.delay_model import Scenarios
from fullrank.planning.tuning import TUNING


def resample(past: Scenarios, *, count: int, draws: np.random.Generator) -> Scenarios:
    """``count`` equally likely scenarios; each learner keeps its typical pace."""
    typical_s = np.average(past.unit_s, axis=0, weights=past.weight)
    iteration = _iterations(past.weight, count, draws)[:, None]
    active = ~past.stopped
    learner = np.broadcast_to(np.arange(len(active)), (count, len(active))).copy()
    late = lateness(past)[:, active]
    if exchangeable(late, past.weight):
        if independent(late > 0, past.weight):
            iteration = draws.choice(len(past.weight), size=learner.shape, p=past.weight)
        learner[:, active] = draws.permuted(learner[:, active], axis=1)
    return Scenarios(
        weight=np.full(count, 1.0 / count),
        unit_s=(past.unit_s / typical_s)[iteration, learner] * typical_s,
        delay_s=past.delay_s[iteration, learner],
        stopped=past.stopped,
        evidence=past.evidence,
    )


def _iterations(weight: Times, count: int, draws: np.random.Generator) -> IntArray:
    """Systematic sample of the iterations in proportion to their weights."""
    levels = (np.arange(count) + draws.random()) / count
    picked = np.searchsorted(np.cumsum(weight), levels)
    return np.minimum(picked, len(weight) - 1).astype(np.int64)


def lateness(past: Scenarios) -> Times:
    """Lateness in whole units of computing time, so that small differences do not count, (K, N)."""
    typical_s = np.average(past.unit_s, axis=0, weights=past.weight)
    excess_s = past.delay_s + past.unit_s - typical_s
    return np.clip(np.rint(excess_s / np.median(typical_s)), 0.0, TUNING.most_late)


def exchangeable(late: Times, weight: Times) -> bool:
    """True if chance explains the differences in lateness, of shape (K, N), between learners.

    Compares the variance of the learners' mean lateness with that of a random permutation within
    each iteration, weighted with ``weight`` of shape (K,).
    """
    if late.shape[1] < 2:
        return False
    by_chance = float(weight**2 @ late.var(axis=1, ddof=1))
    return float((weight @ late).var(ddof=1)) <= TUNING.unequal * by_chance


def independent(late: BoolArray, weight: Times) -> bool:
    """True if the number of late learners varies as if they were late independently."""
    number = late.sum(axis=1)
    mean = float(weight @ number)
    binomial = mean * (1.0 - mean / late.shape[1])
    variance = float(weight @ (number - mean) ** 2)
    least, most = TUNING.independent
    return bool(least * binomial <= variance <= most * binomial)
