"""Tables and figures of the page on [Wang21]."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank.common.seeding import stream
from fullrank.common.types import JSON
from fullrank_reproduction import learning, pictures, wang21
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.learning import CENTRALISED
from fullrank_reproduction.timing import CODES

MOST_LOST = 7
"""Numbers of stragglers k in the table of probabilities."""


def times(tables: Mapping[str, TimeTable]) -> str:
    """All tables side by side: one row for each task, M and code, cells by k."""
    lines = []
    for task in wang21.TASKS:
        for agents in wang21.AGENTS:
            ks = ", ".join(map(str, task.stragglers))
            lines += [
                f"\n**{task.name}**, M = {agents}, t_s = {task.delay_s} s, k = {ks}\n",
                "| code | " + " | ".join(tables) + " |",
                "|---|" + "---|" * len(tables),
            ]
            for code in CODES:
                keys = [(task.name, agents, code, k) for k in task.stragglers]
                cells = [_cell([table.get(key) for key in keys]) for table in tables.values()]
                lines.append(f"| {code} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values: Sequence[float | None]) -> str:
    if all(value is None for value in values):
        return "-"
    return " / ".join("-" if value is None else f"{value:.2f}" for value in values)


def agreement(measured: TimeTable, published: TimeTable) -> str:
    """Distance of predicted times from the published ones, as text."""
    keys = [key for key in published if key in measured]
    errors = np.array([abs(measured[key] / published[key] - 1.0) for key in keys])
    own = np.array([key[0] != "keep_away" for key in keys])
    return (
        f"Median distance from the published time over {len(keys)} cells: "
        f"{np.median(errors):.1%}; without keep away, whose published cells are doubtful, "
        f"{np.median(errors[own]):.1%}, at most {errors[own].max():.1%}."
    )


def probabilities() -> str:
    """P(decodable | k uniformly random stragglers), exact, N = 15."""
    chosen = [
        (code, agents)
        for agents in wang21.AGENTS
        for code in ("replication", "ldpc", "mds", "random_sparse", "cyclic")
    ]
    lines = [
        "| k | " + " | ".join(f"{code}, M = {agents}" for code, agents in chosen) + " |",
        "|---|" + "---|" * len(chosen),
    ]
    columns = [_made(code, agents) for code, agents in chosen]
    for k in range(1, MOST_LOST + 1):
        cells = [f"{decodable_given_losses(code, k).value:.3f}" for code in columns]
        lines.append(f"| {k} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _made(code: str, agents: int) -> Code:
    params = codes.get(code).tolerating(2) or {}
    return make_code(code, rows=wang21.LEARNERS, units=agents, seed=0, **params)


def distances(runs: Mapping[str, JSON]) -> str:
    """Errors of updates decoded with ``vandermonde``."""
    lines = [
        "| task | median relative error | largest | refused by the certificate |",
        "|---|---|---|---|",
    ]
    for task in wang21.TASKS:
        distance = runs[f"{task.name}-{learning.INEXACT}-distance"]
        errors = np.array(distance["errors"])
        lines.append(
            f"| {task.name} | {np.median(errors):.1e} | {errors.max():.1e} | "
            f"{distance['refused']} of {len(errors)} |"
        )
    return "\n".join(lines)


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
