"""Tables of the page on [Wang21]."""

from collections.abc import Mapping, Sequence

import numpy as np

from fullrank.codes import Code, codes, make_code
from fullrank.codes.analysis import decodable_given_losses
from fullrank.common.types import JSON
from fullrank_reproduction import learning, wang21
from fullrank_reproduction.claims import TimeTable
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
