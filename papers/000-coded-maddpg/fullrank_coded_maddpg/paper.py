"""Paper 000: its parts, the judgement of its claims, the tables and pictures of its page.

Differences from the paper:

- Vectors are gradients of two networks in float64 where the paper's are parameters of four in
  float32: as many bytes.
- `mds` is a real frame whose rows combine 4 to M units, not a Vandermonde matrix, which float64
  cannot decode exactly.
- Physical deception runs with one adversary (Sec. V-A and the authors' curves) and with four
  (Sec. V-B).
- The authors' centralised runs train agent 0 by DDPG; here all agents are trained alike.
- Their saved curve of centralised navigation, from -27,469 to -25,259, is of another set-up and
  left out.
- Learners are processes of one machine, and their computing is emulated; the paper has a machine
  for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes

from fullrank.codes.analysis import decodable_given_losses
from fullrank_coded_maddpg import curves, decoding, learning, time_claims, timing
from fullrank_coded_maddpg.published import (
    AGENTS,
    ALL_CODES,
    MATRIX,
    PACKAGE,
    SCALES,
    TOTALLED,
    Wang21Scale,
    Wang21Task,
)
from fullrank_coded_maddpg.time_claims import RowMachines, TimesRow, TimeTable
from fullrank_coded_maddpg.timing import ROWS
from fullrank_papers import pictures
from fullrank_papers.cells import Results
from fullrank_papers.claims import (
    CIRCULAR,
    PRINTED,
    ClaimResult,
    Held,
    Judgement,
    Strength,
    simulated,
)
from fullrank_papers.paper import Findings, Paper, Planned, table

Wang21Findings: TypeAlias = Findings[Wang21Scale]

PUBLISHED, PAPERS, HERE, REAL = "published", "paper's machines", "this machine", "processes"
"""Sources of times."""
TITLES = {
    PAPERS: ("times-paper.png", "Predicted for the paper's machines; dashes: published"),
    HERE: ("times-here.png", "Predicted for learners like this machine"),
    REAL: ("times-processes.png", "Measured on processes with emulated computing"),
}
"""Pictures of times by source: file and title."""
INPUTS = {PAPERS: (0, 1), HERE: (0, 1)}
"""Places of the claims that a source assumes: cells without stragglers, solved or by their load of
units, and that k learners are late by t_s."""
MOST_LOST = 7
"""Numbers of stragglers k in the table of probabilities."""


def _fig4(scale: Wang21Scale) -> Planned:
    return [*(timing.compute_cell(*row, scale) for row in ROWS), *timing.predicted_cells()]


def _processes(scale: Wang21Scale) -> Planned:
    return [timing.real_cell(each, scale.real_rounds) for each in timing.real_settings(scale)]


def predicted(results: Results, source: str) -> TimeTable:
    """Times of the predicted cells of a source."""
    found = {}
    for each in timing.settings(codes=(*ALL_CODES, MATRIX)):
        cell = results[f"predicted-{source}-{each.task.name}-{each.agents}"]
        if each.name in cell:
            found[each] = cell[each.name]
    return time_claims.table(found)


def _times(found: Wang21Findings) -> dict[str, TimeTable]:
    """Times by source."""
    tables = {}
    if "fig4" in found.whole:
        tables[PUBLISHED] = time_claims.published()
        tables[PAPERS] = predicted(found.results, "paper")
        tables[HERE] = predicted(found.results, "scaled")
    if "processes" in found.whole:
        real = timing.real_settings(found.scale)
        tables[REAL] = time_claims.table(
            {each: found.results[f"real-{each.name}"]["seconds"] for each in real}
        )
    return tables


def judged(found: Wang21Findings) -> Judgement:
    """Results of the claims by source."""
    scale, results = found.scale, found.results
    rounds, seeds = scale.real_rounds - 1, scale.seeds
    enough = Held.HELD if rounds >= time_claims.LEAST_ROUNDS else Held.UNDECIDED
    late = simulated("that k learners are late by t_s")
    real = Strength(f"measured, {rounds} rounds", enough)
    strengths = {PUBLISHED: PRINTED, PAPERS: late, HERE: late, REAL: real}
    tables = _times(found)
    if REAL in tables:  # emulated learners have no part beside their units
        apart = time_claims.table({s: timing.apart_s(s) for s in timing.real_settings(scale)})
        tables[REAL] = {
            key: seconds + TOTALLED * apart[key] for key, seconds in tables[REAL].items()
        }
    told: dict[str, list[ClaimResult]] = {
        source: time_claims.judge_times(times, strengths[source], _machines(source, results))
        for source, times in tables.items()
    }
    for source, inputs in INPUTS.items():
        if source in told:
            told[source] = [
                replace(each, held=CIRCULAR.best, strength=CIRCULAR) if place in inputs else each
                for place, each in enumerate(told[source])
            ]
    if "fig3" in found.whole:
        told["runs"] = [
            result
            for panel in learning.panels(scale)
            for result in (
                curves.judge_learning(results, panel, seeds=seeds),
                *curves.judge_published(results, panel, seeds=scale.curve_seeds(panel)),
            )
        ]
    if "payload" in found.whole:
        told["payload"] = [
            curves.judge_payload(results, panel, scale) for panel in learning.payload_panels(scale)
        ]
    if decoding.DECODING in results:
        told["decoding"] = [decoding.judge_decoding(results[decoding.DECODING])]
    return told


def _machines(source: str, results: Results) -> Mapping[TimesRow, RowMachines]:
    """Machines by row."""
    if source == PUBLISHED:
        return {}
    found = {}
    for task, agents in ROWS:
        unit_s, slower = timing.published_machines(task, agents).unit_s, 1.0
        if source == REAL:
            unit_s, slower = timing.EMULATED_UNIT_S, timing.slower_emulated(task, agents)
        elif source == HERE:
            unit_s = timing.machines_here(task, agents, results).unit_s
            slower = timing.slower_here(task, agents, results)
        found[task.name, agents] = RowMachines(unit_s, slower)
    return found


def _values(found: Wang21Findings) -> Mapping[str, Any]:
    scale, results = found.scale, found.results
    values: dict[str, Any] = {"seeds": ", ".join(map(str, scale.seeds))}
    values |= {"slack": time_claims.SLACK, "emulated_s": timing.EMULATED_UNIT_S}
    values |= {"real_rounds": scale.real_rounds - 1, "learnt": timing.LEARNT}
    if "fig3" in found.whole:
        values |= {
            "curves": curves.curves_table(results, scale),
            "played": curves.played_table(results, scale),
            "distances": curves.distances_table(results, scale),
        }
    if "payload" in found.whole:
        values["payload"] = curves.payload_table(results, scale)
    if tables := _times(found):
        drawn = {source: TITLES[source] for source in TITLES if source in tables}
        values["pictures"] = "\n".join(f"![{title}]({name})" for name, title in drawn.values())
        values["times"] = _times_table(tables)
        values["agreement"] = agreement(tables, results) if PAPERS in tables else ""
    if decoding.DECODING in results:
        values["probabilities"] = probabilities()
        values["decoding"] = decoding.decoding_table(results[decoding.DECODING])
    return values


def _times_table(tables: Mapping[str, TimeTable]) -> str:
    """All tables side by side: one row for each task, M and code, cells by k."""
    parts = []
    for task, agents in ROWS:
        ks = ", ".join(map(str, task.stragglers))
        rows = []
        for code in ALL_CODES:
            keys = [(task.name, agents, code, k) for k in task.stragglers]
            rows.append(
                [code, *(_by_k([times.get(key) for key in keys]) for times in tables.values())]
            )
        title = f"\n**{task.name}**, M = {agents}, t_s = {task.delay_s} s, k = {ks}\n\n"
        parts.append(title + table(["code", *tables], rows))
    return "\n".join(parts)


def _by_k(values: Sequence[float | None]) -> str:
    if all(value is None for value in values):
        return "-"
    return "/".join("-" if value is None else f"{value:.2f}" for value in values)


def agreement(tables: Mapping[str, TimeTable], results: Results) -> str:
    """Distances of both models of the paper's machines from the published times."""
    papers, simpler = tables[PAPERS], predicted(results, "simpler")
    return f"""Distance of predicted from published times; the cells from which they were solved are
left out. Keep away's published cells are doubtful.

{_distances(papers, tables[PUBLISHED])}

Without the cost of a learner, solved from two cells a row, over the same cells:

{_distances(simpler, tables[PUBLISHED])}

"""


def _distances(predicted: TimeTable, published: TimeTable) -> str:
    """Distance of predicted times from published ones, inputs of the predictions left out."""
    apart = {
        key: predicted[key] / time - 1.0
        for key, time in published.items()
        if key in predicted and key[2:] not in timing.INPUTS
    }
    rest = [key for key in apart if key[0] != "keep_away"]
    groups = {
        "all cells": list(apart),
        "without keep away": rest,
        "of these replication and LDPC": [k for k in rest if k[2] in ("replication", "ldpc")],
        "of these LDPC without stragglers": [key for key in rest if key[2:] == ("ldpc", 0)],
    }
    rows = []
    for name, keys in groups.items():
        errors = np.array([apart[key] for key in keys])
        sizes = f"{np.median(np.abs(errors)):.1%}", f"{np.abs(errors).max():.1%}"
        rows.append([name, len(keys), *sizes, f"{errors.mean():+.1%}"])
    return table(["cells", "number", "median error", "largest", "mean, signed"], rows)


def probabilities() -> str:
    """P(decodable | k uniformly random stragglers), exact, N = 15."""
    names = ("replication", "ldpc", "mds", "random_sparse", "cyclic")
    columns = {
        f"{name}, M = {agents}": time_claims.made(name, agents)
        for agents in AGENTS
        for name in names
    }
    return table(
        ["k", *columns],
        (
            [k, *(f"{decodable_given_losses(code, k).value:.3f}" for code in columns.values())]
            for k in range(1, MOST_LOST + 1)
        ),
    )


def _draw(found: Wang21Findings, directory: Path) -> None:
    scale, results = found.scale, found.results
    tables = _times(found)
    for source, (name, title) in TITLES.items():
        if source in tables:
            beside = tables[PUBLISHED] if source == PAPERS else {}
            _draw_times(tables[source], beside, title, directory / name)
    if "fig3" in found.whole:
        curves.draw_curves(results, scale, directory / "learning.png")
    if "payload" in found.whole:
        curves.draw_payload(results, scale, directory / "payload.png")


def _draw_times(times: TimeTable, beside: TimeTable, title: str, path: Path) -> None:
    """Figs. 4 and 5: bars by code for each k; dashes show another table's times."""
    rows = [row for row in ROWS if any(key[:2] == (row[0].name, row[1]) for key in times)]
    titles = [f"{task.name.replace('_', ' ')}, M = {agents}" for task, agents in rows]
    with pictures.panels(path, titles, size=(6.0, 3.0), beneath=8, title=title) as every:
        for axes, (task, agents) in zip(every, rows, strict=True):
            _draw_bars(axes, task, agents, times, beside)


def _draw_bars(
    axes: Axes, task: Wang21Task, agents: int, times: TimeTable, beside: TimeTable
) -> None:
    width = 0.8 / len(ALL_CODES)
    for index, code in enumerate(ALL_CODES):
        places = np.arange(len(task.stragglers)) + (index - (len(ALL_CODES) - 1) / 2) * width
        keys = [(task.name, agents, code, k) for k in task.stragglers]
        heights = [times.get(key, np.nan) for key in keys]
        axes.bar(places, heights, 0.9 * width, color=pictures.COLOURS[code], label=code)
        others = [beside.get(key, np.nan) for key in keys]
        axes.hlines(others, places - width / 2, places + width / 2, color="black", linewidth=1.6)
    axes.set_xticks(range(len(task.stragglers)), [f"k = {k}" for k in task.stragglers])
    axes.set_ylabel(f"s for {TOTALLED} iterations")


PAPER = Paper(
    folder="000-coded-maddpg",
    package=PACKAGE,
    scales=SCALES,
    parts={
        "codes": lambda scale: [decoding.decoding_cell(scale.repeats)],
        "fig4": _fig4,
        "processes": _processes,
        "fig3": learning.cells,
        "payload": learning.payload_cells,
    },
    judged=judged,
    modules=("fullrank.algorithms.maddpg", "fullrank_coded_maddpg.paper"),
    values=_values,
    draw=_draw,
)
