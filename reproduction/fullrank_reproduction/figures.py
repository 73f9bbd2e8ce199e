"""Figures of the reproduction of [Wang21]."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fullrank.common.seeding import stream
from fullrank.common.types import JSON
from fullrank_reproduction import pictures, wang21
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.learning import CENTRALISED
from fullrank_reproduction.timing import CODES

RESAMPLES = 2_000
POINTS = 20
"""Points of a learning curve, each the mean of an interval."""


def draw_learning(runs: Mapping[str, JSON], *, seeds: int, path: Path) -> None:
    """Fig. 3: returns by iteration, mean over seeds with a 95 % bootstrap band."""
    figure = pictures.blank(width=11, height=7)
    for axes, task in zip(figure.subplots(2, 2).flat, wang21.TASKS, strict=True):
        for name, colour, style in ((CENTRALISED, "#333333", "-"), ("cyclic", "#d55e00", "--")):
            curves = [runs[f"{task.name}-{name}-seed{seed}"]["returns"] for seed in range(seeds)]
            _draw_band(axes, curves, label=name, colour=colour, style=style)
        axes.set_title(task.name.replace("_", " "), fontsize=11)
        axes.set_xlabel("iteration")
        axes.set_ylabel("episode return, all agents")
        pictures.tidy(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=pictures.DPI)


def _draw_band(
    axes: Axes, curves: Sequence[Sequence[float | None]], *, label: str, colour: str, style: str
) -> None:
    values = np.array(curves, dtype=np.float64)  # None becomes NaN
    parts = np.array_split(np.arange(values.shape[1]), min(POINTS, values.shape[1]))
    means = np.stack([np.nanmean(values[:, part], axis=1) for part in parts], axis=1)
    at = [float(part.mean()) for part in parts]
    low, high = _band(means)
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.plot(at, means.mean(axis=0), style, color=colour, linewidth=1.8, label=label)


def _band(means: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bootstrap band over the seeds of means, shape (seeds, points)."""
    picked = stream(0, "band").integers(len(means), size=(RESAMPLES, len(means)))
    low, high = np.percentile(means[picked].mean(axis=1), [2.5, 97.5], axis=0)
    return low, high


def draw_times(
    measured: TimeTable, *, title: str, path: Path, beside: TimeTable | None = None
) -> None:
    """Figs. 4 and 5: bars by code for each k; dashes show another table's times."""
    rows = [
        (task, agents)
        for task in wang21.TASKS
        for agents in wang21.AGENTS
        if any(key[:2] == (task.name, agents) for key in measured)
    ]
    columns = min(2, len(rows))
    lines = -(-len(rows) // columns)
    figure = pictures.blank(width=6.0 * columns, height=2.9 * lines + 0.9)
    figure.suptitle(title, fontsize=12)
    cells = figure.subplots(lines, columns, squeeze=False)
    for axes, (task, agents) in zip(cells.flat, rows, strict=False):
        _draw_bars(axes, task, agents, measured, beside or {})
    figure.legend(
        *cells.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4 * columns
    )
    figure.savefig(path, dpi=pictures.DPI)


def _draw_bars(
    axes: Axes, task: wang21.Wang21Task, agents: int, measured: TimeTable, beside: TimeTable
) -> None:
    width = 0.8 / len(CODES)
    for index, code in enumerate(CODES):
        places = np.arange(len(task.stragglers)) + (index - (len(CODES) - 1) / 2) * width
        keys = [(task.name, agents, code, k) for k in task.stragglers]
        heights = [measured.get(key, np.nan) for key in keys]
        axes.bar(places, heights, 0.9 * width, color=pictures.COLOURS[code], label=code)
        others = [beside.get(key, np.nan) for key in keys]
        axes.hlines(others, places - width / 2, places + width / 2, color="black", linewidth=1.6)
    axes.set_xticks(range(len(task.stragglers)), [f"k = {k}" for k in task.stragglers])
    axes.set_ylabel(f"s for {wang21.TOTALLED} iterations")
    axes.set_title(f"{task.name.replace('_', ' ')}, M = {agents}", fontsize=10)
    pictures.tidy(axes)
