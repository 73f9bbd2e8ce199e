"""Statistics of a unit's temporal differences, which travel with its update.

They are those that PyMARL's ``QLearner`` logs, under its names. A unit's share of each is appended
to the unit's gradient as two entries, so that it is encoded, summed, audited and journalled as the
gradient is (docs/adr/0047); the optimiser takes the sums off again.
"""

from collections.abc import Mapping

import numpy as np

from fullrank.common.types import Array, FloatArray

NAMES = ("loss", "td_error_abs", "q_taken_mean", "target_mean")
"""The loss; the mean magnitude of the temporal differences; the means of Q_t and of G_t, divided by
the number of agents as in PyMARL."""
STATISTICS_SIZE = 2 * len(NAMES)
"""Number of entries that statistics take in an update."""

_COARSE, _FINE = 2.0**26, 2.0**-10
"""Values of a coarse and of a fine entry of 1. Magnitudes up to 2^25 are kept to a relative 2^-23,
and to 2^-46 on the grid of updates."""


def shares_of(
    value: FloatArray, expected: FloatArray, valid: FloatArray, *, steps: int, agents: int
) -> FloatArray:
    """Return a unit's share of the statistics as entries of an update, shape (STATISTICS_SIZE,).

    Sums run over valid steps alone, so that padding changes no bit.

    Args:
        value: Q_t, shape (L, K, values).
        expected: G_t, of the same shape.
        valid: 1 for steps of an episode, 0 for padding, shape (L, K).
        steps: Number of steps of all episodes of the sample.
        agents: Number of agents.
    """
    chosen = valid > 0
    own, aim = (part[chosen].astype(np.float64) for part in (value, expected))
    with np.errstate(all="ignore"):  # values that are not finite are refused with the gradient
        error, count = aim - own, steps * own.shape[1]
        own_sum, aim_sum = own.sum() / agents, aim.sum() / agents
        sums = [np.square(error).sum(), np.abs(error).sum(), own_sum, aim_sum]
        return _entries(np.array(sums) / count)


def _entries(shares: Array) -> FloatArray:
    """Split each number into a multiple of 2^-10 and the rest, both within the bound of updates."""
    coarse = np.rint(shares / _FINE) * _FINE
    pairs = np.stack([coarse / _COARSE, (shares - coarse) / _FINE], axis=1)
    return pairs.clip(-0.5, 0.5).ravel().astype(np.float32)


def statistics_of(entries: FloatArray) -> Mapping[str, float]:
    """Return the statistics by name from the sum of all units' entries."""
    pairs = entries.reshape(-1, 2).astype(np.float64)
    totals = pairs[:, 0] * _COARSE + pairs[:, 1] * _FINE
    return dict(zip(NAMES, totals.tolist(), strict=False))
