"""Means with confidence intervals, and the comparison of runs by them.

Runs that differ only in their seed are samples of one group. Its centre is the interquartile mean
over its runs, as in Agarwal, Schwarzer, Castro, Courville, Bellemare: Deep Reinforcement Learning
at the Edge of the Statistical Precipice, NeurIPS 2021, arXiv:2108.13264. Its interval over runs is
their percentile bootstrap, and Student's of fewer than ``ENOUGH`` runs, of which resampling shows
too little spread. Two groups are compared seed by seed, because runs with the same seed start with
the same parameters and episodes.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from fullrank.common.seeding import stream
from fullrank.common.types import JSON, Interval

RESAMPLES = 10_000
ENDS = (2.5, 97.5)
"""Percentiles between which 95 % of the resampled statistics lie."""
ENOUGH = 10
"""Runs from which percentiles of the resampled statistics serve: those of two normal runs contain
the true mean in 50 % of all cases, of five in 90 %, of ten in 93 %."""


def row_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of each row."""
    means: NDArray[np.float64] = rows.mean(axis=1)
    return means


def interquartile_means(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the middle half of each row, robust against single failed runs."""
    count = rows.shape[1]
    cut = count // 4
    return row_means(np.partition(rows, (cut, count - cut - 1), axis=1)[:, cut : count - cut])


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """A mean with its 95 % interval; equal values give an equal interval.

    Args:
        values: Independent observations, shape (n,), n at least 1.
    """
    return interval_of(row_means(values[None]), row_means(_drawn(values)), size=len(values))


def interval_of(
    centre: NDArray[np.float64], resampled: NDArray[np.float64], *, size: int
) -> Interval:
    """The 95 % interval of a statistic.

    Its ends are percentiles of the resampled statistic, and Student's of fewer than ``ENOUGH``
    observations; one alone has no bounds.

    Args:
        centre: The statistic, shape (1,).
        resampled: The statistic of resampled observations, shape (resamples,).
        size: Number of observations.
    """
    if size == 1:
        return Interval(float(centre[0]), -math.inf, math.inf)
    column = resampled[:, None]
    few = size < ENOUGH
    ends = student_ends([column], centre, sizes=[size]) if few else percentiles(column)
    return Interval(*(float(end[0]) for end in (centre, *ends)))


def _drawn(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows of values drawn with replacement, shape (n,) to (resamples, n)."""
    return values[stream(0, "bootstrap").integers(len(values), size=(RESAMPLES, len(values)))]


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


def percentiles(
    resampled: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of the 95 % interval of a statistic of resampled runs, shape (resamples, points)."""
    low, high = np.percentile(resampled, ENDS, axis=0)
    return low, high


def student_ends(
    resampled: Sequence[NDArray[np.float64]], centre: NDArray[np.float64], *, sizes: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends of Student's 95 % interval of a statistic; equal runs give an equal interval.

    The variance due to a stratum is the mean square of the deviations from the centre when its runs
    alone are resampled, times runs over degrees of freedom. The degrees of freedom of their sum are
    those of Welch and Satterthwaite. A stratum of one run shows no variance: there is no interval
    then, and both ends are NaN.

    Args:
        resampled: The statistic by resampled stratum, each of shape (resamples, points).
        centre: The statistic of the runs, shape (points,).
        sizes: Number of runs of each stratum.
    """
    from scipy.special import stdtrit

    if min(sizes) == 1:
        none = np.full_like(centre, np.nan)
        return none, none
    free = np.array(sizes)[:, None] - 1
    squares = np.array([np.mean((each - centre) ** 2, axis=0) for each in resampled])
    variances = squares * (free + 1) / free
    total, parts = variances.sum(axis=0), (variances**2 / free).sum(axis=0)
    together = np.divide(total**2, parts, out=np.ones_like(total), where=parts > 0)
    reach = np.sqrt(total) * stdtrit(together, ENDS[1] / 100)
    return centre - reach, centre + reach


def wilson(successes: NDArray[np.bool_]) -> Interval:
    """Compute Wilson's score interval of a proportion, 95 %, which is sound at 0 and 1 too.

    Args:
        successes: Independent outcomes, shape (n,), n at least 1.
    """
    from scipy.special import ndtri

    n, mean, z = len(successes), float(successes.mean()), float(ndtri(0.975))
    centre = (mean + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * np.sqrt(mean * (1 - mean) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low, high = max(0.0, float(centre - reach)), min(1.0, float(centre + reach))
    return Interval(mean, min(low, mean), max(high, mean))  # rounding may leave 1e-17 between them


WINS = "win rate in %"
"""Name of the score that counts wins."""
GAP = "gap closed in %"
"""Name of the score that tells the share of the way from random play to a good policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Result of one run."""

    settings: Mapping[str, Hashable]
    """Configuration by dotted key, without the seed."""
    seed: int
    iterations: int
    """Number of iterations that the policies were trained for."""
    scores: Mapping[str, float]
    """Mean return of the policies by side and, where there are wins, the percentage of episodes won
    as ``WINS``; with a good reference policy the closed gap as ``GAP``."""
    measure: str = ""
    """Name of the result by which methods are compared over tasks."""
    episodes: Sequence[float] = ()
    """This result in each episode; its mean is the run's."""
    scale: tuple[float, float] | None = None
    """Results of random and of good play, or without and with every win, where they are known."""
    curve: Mapping[float, float] = field(default_factory=dict)
    """The same in training, by environment steps; empty if it was not recorded."""

    @property
    def result(self) -> float:
        """The result of the policies."""
        return fmean(self.episodes)


def grouped(results: Iterable[RunResult]) -> list[list[RunResult]]:
    """Group runs with equal settings, in order of first appearance."""
    groups: dict[frozenset[tuple[str, Hashable]], list[RunResult]] = {}
    for result in results:
        groups.setdefault(frozenset(result.settings.items()), []).append(result)
    return list(groups.values())


def labels(groups: Sequence[Sequence[RunResult]]) -> list[str]:
    """Label of each group: the settings that not all groups share."""
    settings = [group[0].settings for group in groups]
    keys = sorted({key for table in settings for key in table})
    varying = [key for key in keys if len({table.get(key) for table in settings}) > 1]
    return [
        ", ".join(f"{key} = {table[key]}" for key in varying if key in table) for table in settings
    ]


def named(tables: Sequence[Mapping[str, Hashable]], key: str) -> list[str]:
    """Name of each table of settings: the value of ``key``, and what sets it apart from its like.

    These are settings in which tables with the same value of ``key`` differ, without commas.
    """
    names = []
    for table in tables:
        alike = [other for other in tables if other[key] == table[key]]
        apart = [each for each in sorted(table) if len({other.get(each) for other in alike}) > 1]
        words = [str(table[key]), *(f"{each.split('.')[-1]}={table[each]}" for each in apart)]
        names.append(" ".join(words).replace(",", ";"))
    return names


def centre(group: Sequence[RunResult], score: str) -> Interval:
    """Interquartile mean of a score over the runs of a group, with its interval."""
    return _over_runs([result.scores[score] for result in group])


def difference(
    group: Sequence[RunResult], base: Sequence[RunResult], score: str
) -> Interval | None:
    """Interquartile mean of the difference of a score from ``base``, seed by seed.

    None if the groups play different environments or have no seed in common.
    """
    by_seed = {
        result.seed: result
        for result in base
        if task_of(result.settings) == task_of(group[0].settings)
    }
    pairs = [(result, by_seed[result.seed]) for result in group if result.seed in by_seed]
    differences = [result.scores[score] - other.scores[score] for result, other in pairs]
    return _over_runs(differences) if differences else None


def task_of(settings: Mapping[str, Hashable]) -> Mapping[str, Hashable]:
    """Settings of the environment, but for its number of copies."""
    return {
        key: value
        for key, value in settings.items()
        if key.startswith("environment.") and key != "environment.copies"
    }


def _over_runs(values: Sequence[float]) -> Interval:
    """Interquartile mean with its interval, which is unbounded for a single run."""
    runs = np.array(values)
    resampled = interquartile_means(_drawn(runs))
    return interval_of(interquartile_means(runs[None]), resampled, size=len(runs))


def flat(table: JSON, prefix: str = "") -> dict[str, Hashable]:
    """Nested tables as a mapping from dotted keys to comparable values."""
    leaves: dict[str, Hashable] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = str(value) if isinstance(value, list) else value
    return leaves
