"""Whether recent rounds are what was forecast, and if not, since when."""

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaincc, ndtr

LOOKED_BACK = 40
"""Rounds that are compared with their forecasts."""
UNLIKELY = 1e-5
"""Rounds as improbable as this contradict their forecasts: they are looked at hundreds of times."""
APART = 0.03
"""And the share by which their mean must be off: less is no reason to forget."""
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
