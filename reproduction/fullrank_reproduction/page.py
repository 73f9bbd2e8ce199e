"""Tables and figures of the page on [Wang21], but for Fig. 3."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank.common.types import JSON
from fullrank_reproduction import learning, pictures, wang21
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.timing import CODES
from fullrank_reproduction.wang21 import PublishedPanel

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


def agreement(predicted: TimeTable, published: TimeTable, inputs: Sequence[tuple[str, int]]) -> str:
    """Distance of predicted times from published ones, as text.

    Args:
        predicted: Predicted times.
        published: Published times.
        inputs: Cells, (code, k), from which the prediction was solved, and which do not count.
    """
    apart = {
        key: predicted[key] / time - 1.0
        for key, time in published.items()
        if key in predicted and key[2:] not in inputs
    }
    groups = {
        "all cells": list(apart),
        "without keep away": [key for key in apart if key[0] != "keep_away"],
    }
    groups["of these replication and LDPC"] = [
        key for key in groups["without keep away"] if key[2] in ("replication", "ldpc")
    ]
    groups["of these LDPC without stragglers"] = [
        key for key in groups["without keep away"] if key[2:] == ("ldpc", 0)
    ]
    lines = ["| cells | number | median error | largest | mean, signed |", "|---|---|---|---|---|"]
    for name, keys in groups.items():
        errors = np.array([apart[key] for key in keys])
        lines.append(
            f"| {name} | {len(keys)} | {np.median(np.abs(errors)):.1%} | "
            f"{np.abs(errors).max():.1%} | {errors.mean():+.1%} |"
        )
    return "\n".join(lines)


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


def distances(runs: Mapping[str, JSON], panels: Sequence[PublishedPanel]) -> str:
    """Errors of updates decoded with ``vandermonde``."""
    lines = [
        "| task | median relative error | largest | refused by the certificate |",
        "|---|---|---|---|",
    ]
    for panel in panels:
        distance = runs[f"{panel.name}-{learning.INEXACT}-distance"]
        errors = np.array(distance["errors"])
        lines.append(
            f"| {panel.name} | {np.median(errors):.1e} | {errors.max():.1e} | "
            f"{distance['refused']} of {len(errors)} |"
        )
    return "\n".join(lines)


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
