"""Means with honest intervals."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fullrank.seeding import stream

RESAMPLES = 10_000


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


def bootstrap(values: NDArray[np.float64], *, seed: int = 0) -> Interval:
    """Percentile bootstrap of the mean; equal values and seed give an equal interval.

    Args:
        values: Independent observations, shape (n,), n at least 1.
        seed: Keys the resamples.
    """
    picked = stream(seed, "bootstrap").integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(values[picked].mean(axis=1), [2.5, 97.5])
    return Interval(float(values.mean()), float(low), float(high))
