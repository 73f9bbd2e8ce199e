"""Aggregates over the runs of methods on several tasks, with intervals by stratified resampling.

Interquartile means, performance profiles and probabilities of improvement are those of Agarwal,
Schwarzer, Castro, Courville, Bellemare: Deep Reinforcement Learning at the Edge of the Statistical
Precipice, NeurIPS 2021, arXiv:2108.13264: runs are drawn with replacement within each task.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import Array
from fullrank.runs.statistics import (
    ENOUGH,
    RunResult,
    interquartile_means,
    named,
    percentiles,
    student_ends,
    task_of,
)

RESAMPLES = 2_000
CHANCE = 0.025
"""Largest share of studies in which chance may separate equal methods."""
WINDOWS = 20
"""Number of moving-mean windows in a curve."""

OverStrata: TypeAlias = Callable[[Sequence[Array]], Array]
"""Statistic of resampled strata, each of shape (resamples, runs, points): by resample and point."""


class Band(NamedTuple):
    """A statistic and the ends of its interval, each of shape (points,)."""

    centre: Array
    low: Array
    high: Array


def band(strata: Sequence[Array], statistic: OverStrata) -> Band:
    """A mean of runs with its 95 % interval; equal values give an equal band.

    It is a stratified percentile bootstrap, and Student's where a stratum has fewer than ``ENOUGH``
    runs.

    Args:
        strata: Values of the runs of each stratum, each of shape (runs, points).
        statistic: The mean of the strata.
    """
    sizes = [len(values) for values in strata]
    if min(sizes) >= ENOUGH:
        return share(strata, statistic)
    drawn = _drawn(strata)
    whole = [
        np.broadcast_to(values, each.shape) for values, each in zip(strata, drawn, strict=True)
    ]
    alone = [statistic([*whole[:at], drawn[at], *whole[at + 1 :]]) for at in range(len(strata))]
    centre = _of_runs(strata, statistic)
    return Band(centre, *student_ends(alone, centre, sizes=sizes))


def share(strata: Sequence[Array], statistic: OverStrata) -> Band:
    """A share of runs, or of pairs of them, with its stratified percentile bootstrap, 95 %."""
    return Band(_of_runs(strata, statistic), *percentiles(statistic(_drawn(strata))))


def _of_runs(strata: Sequence[Array], statistic: OverStrata) -> Array:
    """A statistic of runs, shape (points,)."""
    centre: Array = statistic([values[None] for values in strata])[0]
    return centre


def _drawn(strata: Sequence[Array]) -> list[Array]:
    """Runs that are drawn with replacement within each stratum."""
    generator = stream(0, "strata")
    return [
        values[generator.integers(len(values), size=(RESAMPLES, len(values)))] for values in strata
    ]


def interquartile_mean(strata: Sequence[Array]) -> Array:
    """The mean of the middle half of all runs; of fewer than four runs it is their mean."""
    pooled = np.moveaxis(np.concatenate(strata, axis=1), 1, -1)
    return interquartile_means(pooled.reshape(-1, pooled.shape[-1])).reshape(pooled.shape[:-1])


def mean(strata: Sequence[Array]) -> Array:
    """The mean over tasks of the mean over runs."""
    return np.asarray(np.mean([values.mean(axis=1) for values in strata], axis=0))


def improvement(strata: Sequence[Array]) -> Array:
    """Probability that a run of the first half of the strata beats one of the second half.

    It is that of a draw on the same task, and the mean over tasks; equal runs count half.
    """
    half = len(strata) // 2
    return mean(
        [
            np.heaviside(x[:, :, None] - y[:, None], 0.5).mean(axis=2)
            for x, y in zip(strata[:half], strata[half:], strict=True)
        ]
    )


def moving_mean(values: Array, window: int) -> Array:
    """Centred mean over ``window`` entries, fewer at the ends; same length as ``values``."""
    ones = np.ones(min(window, len(values)))
    return np.convolve(values, ones, "same") / np.convolve(np.ones(len(values)), ones, "same")


def on_grid(curves: Sequence[Mapping[float, float]], *, points: int = 100) -> tuple[Array, Array]:
    """Moving means of curves at common abscissae, which all of them reach.

    Args:
        curves: Ordinates by abscissa, at least one each.
        points: Number of abscissae.

    Returns:
        The abscissae, shape (points,), and the ordinates, shape (curves, points).
    """
    window = max(1, min(map(len, curves)) // WINDOWS)
    grid = np.linspace(max(map(min, curves)), min(map(max, curves)), points)
    smooth = [moving_mean(np.array([curve[x] for x in sorted(curve)]), window) for curve in curves]
    return grid, np.stack(
        [np.interp(grid, sorted(curve), y) for curve, y in zip(curves, smooth, strict=True)]
    )


ByTask: TypeAlias = Mapping[str, Mapping[str, Sequence[RunResult]]]
"""Runs by task and method."""


def places(settings: Sequence[Mapping[str, Hashable]]) -> list[tuple[str, str]]:
    """Names of task and method of each run, by its settings without the seed.

    A name is that of the environment, or of the algorithm, with the settings in which runs of this
    name differ, for a method those of the same task.
    """
    tasks = named([task_of(each) for each in settings], "environment.name")
    methods = dict[int, str]()
    for task in dict.fromkeys(tasks):
        played = [index for index, name in enumerate(tasks) if name == task]
        own = [
            {
                key: value
                for key, value in settings[index].items()
                if key not in task_of(settings[index])
            }
            for index in played
        ]
        methods |= dict(zip(played, named(own, "algorithm.name"), strict=True))
    return [(task, methods[index]) for index, task in enumerate(tasks)]


def by_task(results: Sequence[RunResult]) -> ByTask:
    """Runs by the names of task and method."""
    cells: dict[str, dict[str, list[RunResult]]] = {}
    names = places([result.settings for result in results])
    for (task, method), result in zip(names, results, strict=True):
        cells.setdefault(task, {}).setdefault(method, []).append(result)
    return cells


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Scores of methods on tasks that all of them played.

    On each task 0 and 1 are random play and the good policy, no and all episodes won, or else the
    worst and the best run.
    """

    cells: ByTask
    methods: Sequence[str]
    """The best first, by interquartile mean."""
    scales: Mapping[str, tuple[float, float]]
    """The results on each task whose scores are 0 and 1."""

    @classmethod
    def of(cls, results: Sequence[RunResult]) -> "Study":
        """The study of runs; tasks that a method did not play are left out.

        Raises:
            ConfigError: No task was played by all methods.
        """
        cells = by_task(results)
        methods = list(dict.fromkeys(method for played in cells.values() for method in played))
        common = {task: played for task, played in cells.items() if len(played) == len(methods)}
        if not common:
            raise ConfigError("no task was played by all methods: compare runs of the same tasks")
        scales = {task: _scale(played) for task, played in common.items()}
        study = cls(cells=common, methods=methods, scales=scales)
        ranked = sorted(methods, key=lambda method: -study.score(method).centre[0])
        return cls(cells=common, methods=ranked, scales=scales)

    def scores(self, method: str) -> list[Array]:
        """Scores of a method's runs on each task, each of shape (runs, 1)."""
        return [self.scaled(task, self.results(task, method)) for task in self.cells]

    def results(self, task: str, method: str) -> Array:
        """Results of a method's runs on a task, shape (runs, 1)."""
        return np.array([[run.result] for run in self.cells[task][method]])

    def scaled(self, task: str, results: Array) -> Array:
        """Scores of results on a task."""
        zero, one = self.scales[task]
        return (results - zero) / (one - zero)

    def score(self, method: str, statistic: OverStrata = interquartile_mean) -> Band:
        """Aggregate score of a method over tasks and runs, of one point."""
        return band(self.scores(method), statistic)

    def profile(self, method: str, thresholds: Array) -> Band:
        """Share of a method's runs with a higher score than each threshold."""
        return share([np.where(each > thresholds, 1.0, 0.0) for each in self.scores(method)], mean)

    def improvements(self) -> dict[tuple[str, str], Band]:
        """Probability that the first of two methods beats the second, the better one first."""
        return {
            (better, other): share([*self.scores(better), *self.scores(other)], improvement)
            for better, other in combinations(self.methods, 2)
        }

    def curves(self, points: int = 100) -> tuple[dict[str, Array], dict[str, list[Array]]]:
        """Environment steps by task, and by method scores in training until them on each task.

        Both are empty where a run has recorded no returns with steps.
        """
        runs = [run for played in self.cells.values() for each in played.values() for run in each]
        if not all(run.curve for run in runs):
            return {}, {}
        steps: dict[str, Array] = {}
        learnt: dict[str, list[Array]] = {method: [] for method in self.methods}
        for task, played in self.cells.items():
            curves = [run.curve for method in self.methods for run in played[method]]
            steps[task], values = on_grid(curves, points=points)
            ends = np.cumsum([len(played[method]) for method in self.methods])[:-1]
            for method, each in zip(self.methods, np.split(values, ends), strict=True):
                learnt[method].append(self.scaled(task, each))
        return steps, learnt

    def verdict(self) -> list[str]:
        """Lines that say which of two methods is better, and how sure that is.

        It is undecided where the interval contains one half, or where equal methods with so few
        runs would be fully separated by chance in more than ``CHANCE`` of all studies.
        """
        lines = []
        for (first, second), (centre, low, high) in self.improvements().items():
            runs = [(len(each[first]), len(each[second])) for each in self.cells.values()]
            few = math.prod(1 / math.comb(m + n, n) for m, n in runs) > CHANCE
            better = "better" if low[0] > 0.5 else "worse" if high[0] < 0.5 else ""
            said = f"{first} is {better} than {second}"
            if few or not better:
                said = f"{first} or {second}: undecided{', too few runs' if few else ''}"
            interval = f"{centre[0]:.2f} [{low[0]:.2f}, {high[0]:.2f}]"
            lines.append(f"{said}; probability of improvement {interval}")
        return lines


def _scale(played: Mapping[str, Sequence[RunResult]]) -> tuple[float, float]:
    """Results that are scored 0 and 1."""
    runs = [run for each in played.values() for run in each]
    if (scale := runs[0].scale) is not None:
        return scale
    results = [run.result for run in runs]
    low, high = min(results), max(results)
    return (low, high) if low < high else (low - 1.0, low)
