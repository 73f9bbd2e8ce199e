"""Means with honest intervals."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.seeding import stream

RESAMPLES = 10_000


class Interval(NamedTuple):
    """A mean and its bootstrap interval, of 95 % unless said otherwise."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


def bootstrap(values: NDArray[np.float64], *, seed: int = 0, share: float = 0.95) -> Interval:
    """Percentile bootstrap of the mean; equal values and seed give an equal interval.

    Args:
        values: Independent observations, shape (n,), n at least 1.
        seed: Keys the resamples.
        share: Of the resampled means, how many lie in the interval.
    """
    picked = stream(seed, "bootstrap").integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[picked].mean(axis=1), [50 - 50 * share, 50 + 50 * share])
    return Interval(float(values.mean()), float(low), float(high))
