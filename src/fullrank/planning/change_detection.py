"""Change detection in round times and paces: the number of iterations since a change."""

from collections.abc import Sequence

import numpy as np

from fullrank.common.types import Times
from fullrank.planning.tuning import TUNING


def rounds_since_change(recent: Sequence[tuple[float, float]], mean_s: float) -> int:
    """Number of latest rounds that together contradict their forecasts; 0 for none.

    Ranks of rounds that agree with their forecasts are uniform in [0, 1]. Two tests are applied to
    the latest n rounds, for every n: the mean rank, which shows small changes of most rounds, and
    the sum of -log(1 - rank) [Fisher32], which shows a few rounds longer than nearly all forecast
    ones. The change is at the n that chance explains least.

    Args:
        recent: Rank of each round among its forecast, and its seconds; newest last.
        mean_s: Mean of the present forecast.
    """
    from scipy.special import gammaincc, ndtr  # large, and needed by plans only

    rank, round_s = np.array(recent)[::-1].T  # newest first
    rank = np.clip(rank, TUNING.finest_rank, 1 - TUNING.finest_rank)
    count = np.arange(1, len(rank) + 1)
    shifted = ndtr(-np.abs(np.cumsum(rank - 0.5)) * np.sqrt(12 / count))
    longer = gammaincc(count, np.cumsum(-np.log1p(-rank)))
    apart = np.abs(np.cumsum(round_s) / count / mean_s - 1.0) > TUNING.least_shift
    chance = np.where(apart, np.minimum(shifted, longer), 1.0)
    return int(chance.argmin()) + 1 if chance.min() < TUNING.unlikely else 0


def iterations_since_pace_change(pace_s: Times) -> int:
    """Number of latest iterations in which learners have another pace than before; 0 for none.

    For every n, the latest n paces of each learner are compared with its earlier ones by rank
    [Mann47], and the squares are summed over the learners. The change is at the n that chance
    explains least.

    Args:
        pace_s: Seconds a unit in K iterations of one code, newest last, nan where unobserved,
            shape (K, N).
    """
    from scipy.special import chdtrc  # large, and needed by plans only
    from scipy.stats import rankdata

    observed = np.isfinite(pace_s)[::-1]
    ranks = np.nan_to_num(rankdata(pace_s, axis=0, nan_policy="omit"))[::-1]
    total = observed.sum(axis=0)
    newer, mean = np.cumsum(observed, axis=0), (total + 1) / 2
    spread = newer * (total - newer) * (total + 1) / 12
    enough = (newer > 0) & (total - newer >= TUNING.earlier_paces)
    deviation = np.cumsum(ranks, axis=0) - newer * mean
    square = np.divide(deviation**2, spread, out=np.zeros(enough.shape), where=enough)
    chance = np.where(enough.any(axis=1), chdtrc(enough.sum(axis=1), square.sum(axis=1)), 1.0)
    chance[: TUNING.later_paces - 1] = 1.0
    chance[TUNING.tested_rounds :] = 1.0
    return int(chance.argmin()) + 1 if chance.size and chance.min() < TUNING.unlikely else 0
