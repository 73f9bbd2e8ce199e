"""Comparison of runs: runs that differ only in their seed are samples of one group.

The centre of a group is the interquartile mean over its runs, with a bootstrap interval over runs,
as in Agarwal, Schwarzer, Castro, Courville, Bellemare: Deep Reinforcement Learning at the Edge of
the Statistical Precipice, NeurIPS 2021, arXiv:2108.13264. Two groups are compared seed by seed,
because runs with the same seed start with the same parameters and episodes.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import JSON, Interval
from fullrank.runs.statistics import bootstrap, interquartile_means

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


def centre(group: Sequence[RunResult], score: str) -> Interval:
    """Interquartile mean of a score over the runs of a group, with its interval."""
    return _over_runs([result.scores[score] for result in group])


def difference(
    group: Sequence[RunResult], base: Sequence[RunResult], score: str
) -> Interval | None:
    """Interquartile mean of the difference of a score from ``base``, seed by seed.

    None if the groups play different environments or have no seed in common.
    """
    by_seed = {result.seed: result for result in base if _task(result) == _task(group[0])}
    pairs = [(result, by_seed[result.seed]) for result in group if result.seed in by_seed]
    differences = [result.scores[score] - other.scores[score] for result, other in pairs]
    return _over_runs(differences) if differences else None


def _task(result: RunResult) -> Mapping[str, Hashable]:
    """Settings of the environment, but for its number of copies."""
    return {
        key: value
        for key, value in result.settings.items()
        if key.startswith("environment.") and key != "environment.copies"
    }


def _over_runs(values: Sequence[float]) -> Interval:
    """Interquartile mean with its interval, which is unbounded for a single run."""
    if len(values) == 1:
        return Interval(values[0], -math.inf, math.inf)
    return bootstrap(np.array(values), statistic=interquartile_means)


def flat(table: JSON, prefix: str = "") -> dict[str, Hashable]:
    """Nested tables as a mapping from dotted keys to comparable values."""
    leaves: dict[str, Hashable] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = str(value) if isinstance(value, list) else value
    return leaves
