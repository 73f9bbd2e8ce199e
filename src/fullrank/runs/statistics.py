"""Means with honest intervals."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t, trim_mean

from fullrank.common.seeding import stream
from fullrank.common.types import Interval

Statistic: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Of the entries of each row, shape (rows, n) to (rows,)."""

RESAMPLES = 10_000


def row_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each row."""
    means: NDArray[np.float64] = rows.mean(axis=1)
    return means


def interquartile_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the middle half of each row, which a run that failed does not drag along."""
    return np.asarray(trim_mean(rows, 0.25, axis=1))


def bootstrap(
    values: NDArray[np.float64],
    *,
    seed: int = 0,
    share: float = 0.95,
    statistic: Statistic = row_means,
) -> Interval:
    """Percentile bootstrap of a mean; equal values and seed give an equal interval.

    Args:
        values: Independent observations, shape (n,), n at least 1.
        seed: Keys the resamples.
        share: Of the resampled means, how many lie in the interval.
        statistic: Which mean.
    """
    picked = stream(seed, "bootstrap").integers(len(values), size=(RESAMPLES, len(values)))
    resampled = statistic(values[picked])
    low, high = np.percentile(resampled, [50 - 50 * share, 50 + 50 * share])
    return Interval(float(statistic(values[None])[0]), float(low), float(high))


def student(values: NDArray[np.float64], *, share: float = 0.95) -> Interval:
    """Student's interval of a mean, for values so few that a bootstrap's would be too narrow.

    Args:
        values: Independent observations, about normal, shape (n,), n at least 2.
        share: Of such intervals, how many hold the true mean.
    """
    mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    reach = error * t.ppf(0.5 + share / 2, len(values) - 1)
    return Interval(float(mean), float(mean - reach), float(mean + reach))
