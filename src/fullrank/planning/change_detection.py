"""Whether recent rounds and paces are what they were before, and if not, since when."""

from collections.abc import Sequence

import numpy as np
from scipy.special import chdtrc, gammaincc, ndtr
from scipy.stats import rankdata

from fullrank.planning.traffic import Times

LOOKED_BACK = 40
"""Rounds that are compared with their forecasts."""
UNLIKELY = 1e-5
"""Rounds as improbable as this contradict their forecasts: they are looked at hundreds of times."""
APART = 0.03
"""And the share by which their mean must be off: less is no reason to forget."""
OLDER = 8
"""A learner's earlier paces that later ones are compared with, at least."""
NEWER = 3
"""Iterations at another pace that are no hiccup."""
FINEST = 1 / 1024
"""A forecast of some hundred scenarios knows no probability more finely."""


def contradicting(recent: Sequence[tuple[float, float]], mean_s: float) -> int:
    """How many of the latest rounds, taken together, contradict what was forecast; 0 for none.

    Ranks of rounds that are as forecast are uniform in [0, 1]. Two tests look at the latest n, for
    every n: their mean, which tells when most rounds change a little, and the sum of -log(1 - rank)
    [Fisher32], which tells when a few are longer than nearly all that was forecast. The n that
    chance explains least is where the change was.

    Args:
        recent: Of each round the share of its forecast that was quicker, and its seconds; newest
            last.
        mean_s: The mean that is forecast now.
    """
    rank, round_s = np.array(recent)[::-1].T  # newest first
    rank = np.clip(rank, FINEST, 1 - FINEST)
    count = np.arange(1, len(rank) + 1)
    shifted = ndtr(-np.abs(np.cumsum(rank - 0.5)) * np.sqrt(12 / count))
    longer = gammaincc(count, np.cumsum(-np.log1p(-rank)))
    apart = np.abs(np.cumsum(round_s) / count / mean_s - 1.0) > APART
    chance = np.where(apart, np.minimum(shifted, longer), 1.0)
    return int(chance.argmin()) + 1 if chance.min() < UNLIKELY else 0


def repaced(pace_s: Times) -> int:
    """How many of the latest iterations show learners at another pace than before; 0 for none.

    For every n, the latest n paces of each learner are compared with its earlier ones by their
    ranks [Mann47]; the squares of all learners are added. The n that chance explains least is where
    the change was.

    Args:
        pace_s: Seconds a unit in K iterations of one code, newest last, nan where it was not seen,
            shape (K, N).
    """
    seen = np.isfinite(pace_s)[::-1]
    ranks = np.nan_to_num(rankdata(pace_s, axis=0, nan_policy="omit"))[::-1]
    total = seen.sum(axis=0)
    newer, mean = np.cumsum(seen, axis=0), (total + 1) / 2
    spread = newer * (total - newer) * (total + 1) / 12
    told = (newer > 0) & (total - newer >= OLDER)
    square = np.divide(
        (np.cumsum(ranks, axis=0) - newer * mean) ** 2, spread, out=np.zeros(told.shape), where=told
    )
    chance = np.where(told.any(axis=1), chdtrc(told.sum(axis=1), square.sum(axis=1)), 1.0)
    chance[: NEWER - 1] = 1.0
    chance[LOOKED_BACK:] = 1.0
    return int(chance.argmin()) + 1 if chance.size and chance.min() < UNLIKELY else 0
