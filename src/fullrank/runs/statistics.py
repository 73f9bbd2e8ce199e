"""Means with confidence intervals."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.seeding import stream
from fullrank.common.types import Interval

Statistic: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Statistic of the entries of each row, shape (rows, n) to (rows,)."""

RESAMPLES = 10_000


def row_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each row."""
    means: NDArray[np.float64] = rows.mean(axis=1)
    return means


def interquartile_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the middle half of each row, robust against single failed runs."""
    count = rows.shape[1]
    cut = count // 4
    return row_means(np.partition(rows, (cut, count - cut - 1), axis=1)[:, cut : count - cut])


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
        seed: Seed of the resamples.
        share: Share of the resampled means inside the interval.
        statistic: The mean to take.
    """
    picked = stream(seed, "bootstrap").integers(len(values), size=(RESAMPLES, len(values)))
    resampled = statistic(values[picked])
    low, high = np.percentile(resampled, [50 - 50 * share, 50 + 50 * share])
    return Interval(float(statistic(values[None])[0]), float(low), float(high))


def student(values: NDArray[np.float64], *, share: float = 0.95) -> Interval:
    """Student's interval of a mean, for samples too small for a bootstrap.

    Args:
        values: Independent, roughly normal observations, shape (n,), n at least 2.
        share: Share of such intervals that contain the true mean.
    """
    from scipy.special import stdtrit  # large, and needed for intervals only

    mean, error = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    reach = error * float(stdtrit(len(values) - 1, 0.5 + share / 2))
    return Interval(float(mean), float(mean - reach), float(mean + reach))


def wilson(successes: NDArray[np.bool_], *, share: float = 0.95) -> Interval:
    """Compute Wilson's score interval of a proportion, which is sound at 0 and 1 too.

    Args:
        successes: Independent outcomes, shape (n,), n at least 1.
        share: Share of such intervals that contain the true proportion.
    """
    from scipy.special import ndtri

    n, mean, z = len(successes), float(successes.mean()), float(ndtri(0.5 + share / 2))
    centre = (mean + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * np.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low, high = max(0.0, float(centre - reach)), min(1.0, float(centre + reach))
    return Interval(mean, min(low, mean), max(high, mean))  # rounding may leave 1e-17 between them
