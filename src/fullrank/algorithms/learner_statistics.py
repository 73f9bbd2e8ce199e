"""Statistics of a unit's temporal differences, which travel with its update.

They are those that PyMARL's ``QLearner`` logs, under its names. A unit's share of each is appended
to the unit's gradient as two entries, so that it is encoded, summed, audited and journalled as the
gradient is (docs/adr/0047); the optimiser takes the sums off again.
"""

from collections.abc import Mapping

import numpy as np

from fullrank.codes.targets import LIMIT
from fullrank.common.types import Array, FloatArray
from fullrank.common.updates import snap

NAMES = ("loss", "td_error_abs", "q_taken_mean", "target_mean")
"""The loss; the mean magnitude of the temporal differences; the means of Q_t and of G_t, divided by
the number of agents as in PyMARL."""
STATISTICS_SIZE = 2 * len(NAMES)
"""Number of entries that statistics take in an update."""

CLAMPED = "clamped"
"""Begins the names of what was clamped to the range of exact sums."""

_MARKED = 2 * NAMES.index("td_error_abs")
"""The entry that marks a unit whose gradient was clamped."""

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


def update_of(gradient: FloatArray, shares: FloatArray) -> FloatArray:
    """Return a unit's update, [its clamped gradient; its share of the statistics], snapped.

    A gradient with an entry at the bound is marked: the coarse entry of ``td_error_abs``, which is
    not negative otherwise, is the bound below zero (docs/adr/0109).
    """
    if max(gradient.max(), -gradient.min()) >= LIMIT:
        shares = shares.copy()
        shares[_MARKED] = -LIMIT
    return snap(np.concatenate([gradient, shares]))


def _entries(shares: Array) -> FloatArray:
    """Split each number into a multiple of 2^-10 and the rest, both within the bound of updates."""
    coarse = np.rint(shares / _FINE) * _FINE
    pairs = np.stack([coarse / _COARSE, (shares - coarse) / _FINE], axis=1)
    return pairs.clip(-LIMIT, LIMIT).ravel().astype(np.float32)


def statistics_of(entries: FloatArray) -> Mapping[str, float]:
    """Return the statistics by name from the sum of all units' entries.

    ``td_error_abs`` is left out where units were clamped; see ``clamped_units``. Statistics of a
    magnitude of 2^25, to which they are clamped, are repeated as ``clamped/`` and their name.
    """
    pairs = entries.reshape(-1, 2).astype(np.float64)
    totals = pairs[:, 0] * _COARSE + pairs[:, 1] * _FINE
    named = dict(zip(NAMES, totals.tolist(), strict=False))
    if clamped_units(entries):
        del named["td_error_abs"]
    largest = LIMIT * _COARSE
    clamped = {f"{CLAMPED}/{name}": value for name, value in named.items() if abs(value) >= largest}
    return {**named, **clamped}


def clamped_units(entries: FloatArray) -> int:
    """Return the number of units whose gradients were clamped, from the sum of all entries."""
    marks = entries[_MARKED : _MARKED + 1]
    return int(np.ceil(-marks[marks < 0.0] / LIMIT).sum())
