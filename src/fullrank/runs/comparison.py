"""Runs side by side: those that differ in nothing but their seed are samples of one thing.

The centre is the interquartile mean over runs and the interval a bootstrap over runs, within each
group, as in Agarwal, Schwarzer, Castro, Courville, Bellemare: Deep Reinforcement Learning at the
Edge of the Statistical Precipice, NeurIPS 2021, arXiv:2108.13264. Two groups are compared seed by
seed, because runs of one seed begin with the same parameters and episodes.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.common.types import JSON, Interval
from fullrank.runs.statistics import bootstrap, interquartile_means


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run."""

    settings: Mapping[str, Hashable]
    """What it was configured as, key by key, without the seed."""
    seed: int
    iterations: int
    """How many its policies learnt from."""
    returns: Mapping[str, float]
    """What its policies earn, by side."""


def grouped(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Runs of equal settings together, in order of first appearance."""
    groups: dict[frozenset[tuple[str, Hashable]], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(frozenset(sample.settings.items()), []).append(sample)
    return list(groups.values())


def labels(groups: Sequence[Sequence[Sample]]) -> list[str]:
    """What sets each group apart: its settings that are not those of every group."""
    everyone = [group[0].settings for group in groups]
    keys = sorted({key for settings in everyone for key in settings})
    apart = [key for key in keys if len({settings.get(key) for settings in everyone}) > 1]
    return [
        ", ".join(f"{key} = {settings[key]}" for key in apart if key in settings)
        for settings in everyone
    ]


def centre(group: Sequence[Sample], side: str) -> Interval:
    """Interquartile mean of a side's return over the runs of a group, with its interval."""
    return _over_runs([sample.returns[side] for sample in group])


def difference(group: Sequence[Sample], base: Sequence[Sample], side: str) -> Interval | None:
    """Interquartile mean of a side's return in ``group`` less that in ``base``, seed by seed.

    None if the groups play different environments or have no seed in common.
    """
    theirs = {sample.seed: sample for sample in base if _task(sample) == _task(group[0])}
    pairs = [(each, theirs[each.seed]) for each in group if each.seed in theirs]
    apart = [own.returns[side] - other.returns[side] for own, other in pairs]
    return _over_runs(apart) if apart else None


def _task(sample: Sample) -> Mapping[str, Hashable]:
    """What is played; how many copies collect it does not matter."""
    return {
        key: value
        for key, value in sample.settings.items()
        if key.startswith("environment.") and key != "environment.copies"
    }


def _over_runs(values: Sequence[float]) -> Interval:
    """One run says nothing about others: its interval has no bounds."""
    if len(values) == 1:
        return Interval(values[0], -math.inf, math.inf)
    return bootstrap(np.array(values), statistic=interquartile_means)


def flat(table: JSON, prefix: str = "") -> dict[str, Hashable]:
    """Nested tables as dotted keys to what can be compared."""
    found: dict[str, Hashable] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = str(value) if isinstance(value, list) else value
    return found
