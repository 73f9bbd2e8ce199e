"""The reproduction of [Wang21]: cells, then tables, pictures and the page."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fullrank.common.types import JSON
from fullrank_reproduction import (
    claims,
    decoding_cost,
    fig3,
    learning,
    page,
    payload,
    report,
    timing,
    wang21,
)
from fullrank_reproduction.cells import Cell, CellOrigin, Clock, run
from fullrank_reproduction.claim_results import (
    CIRCULAR,
    PRINTED,
    ClaimResult,
    Held,
    Strength,
    simulated,
)
from fullrank_reproduction.claims import TimeTable
from fullrank_reproduction.scales import ReportPart, Wang21Scale
from fullrank_reproduction.timing import Train

PAGE = "README.md"


def cells(
    scale: Wang21Scale, parts: Collection[ReportPart], train: Train, clock: Clock
) -> list[Cell]:
    """All cells of the parts, quick ones first.

    Args:
        scale: The scale.
        parts: The parts.
        train: Trains on real services.
        clock: Processor clock.
    """
    by_part: dict[ReportPart, list[Cell]] = {
        ReportPart.CODES: [decoding_cost.cell(scale.repeats, clock)],
        ReportPart.FIG4: [
            timing.measured_compute(task, agents, repeats=scale.repeats, clock=clock)
            for task, agents in ROWS
        ],
        ReportPart.PROCESSES: [
            timing.real(setting, rounds=scale.real_rounds, train=train) for setting in scale.real
        ],
        ReportPart.FIG3: learning.cells(scale.budget),
        ReportPart.PAYLOAD: payload.cells(scale.budget),
    }
    chosen = [cell for part, computed in by_part.items() if part in parts for cell in computed]
    return list({cell.name: cell for cell in chosen}.values())


ROWS = [(task, agents) for task in wang21.TASKS for agents in wang21.AGENTS]


def predictions(results: Mapping[str, JSON]) -> list[Cell]:
    """Cells in virtual time, for the paper's machines and for learners like this one."""
    measured = {(task, agents): results[f"compute-{task.name}-{agents}"] for task, agents in ROWS}
    return [
        *(timing.predicted("paper", *row, timing.published_machines(*row)) for row in ROWS),
        *(
            timing.predicted(
                "simpler",
                *row,
                timing.published_machines(*row, learners=False),
                codes=wang21.CODES,
            )
            for row in ROWS
        ),
        *(timing.predicted("here", *row, timing.ComputeTimes(**measured[row])) for row in ROWS),
    ]


def work(scale: Wang21Scale, parts: Collection[ReportPart], train: Train, clock: Clock) -> float:
    """Sum of the weights of all cells."""
    predicted = 3 * len(ROWS) if ReportPart.FIG4 in parts else 0
    return predicted + sum(cell.weight for cell in cells(scale, parts, train, clock))


def reproduce(
    scale: Wang21Scale,
    directory: Path,
    *,
    train: Train,
    clock: Clock,
    done: Callable[[Cell, CellOrigin], None],
    parts: Collection[ReportPart] = tuple(ReportPart),
    others: Sequence[Path] = (),
    workers: int = 1,
) -> Path:
    """Compute missing cells, then write pictures and the page; returns its path.

    Args:
        scale: The scale.
        directory: Directory of results, pictures and page; existing results are reused.
        train: Trains on real services.
        clock: Processor clock.
        done: Called with each cell when its result is available.
        parts: The parts to compute and show.
        others: Directories of other scales, whose results of equal cells are reused too.
        workers: Processes for training in one process each.
    """
    wanted = cells(scale, parts, train, clock)
    results = run(wanted, directory, done=done, others=others, workers=workers)
    if ReportPart.FIG4 in parts:
        results |= run(predictions(results), directory, done=done, others=others)
    tables = _tables(scale, parts, results)
    _draw(scale, parts, results, tables, directory)
    judged = _judged(scale, parts, results, tables)
    text = report.text(scale, parts, results, tables=tables, judged=judged)
    (directory / PAGE).write_text(text, encoding="utf-8")
    return directory / PAGE


def _judged(
    scale: Wang21Scale,
    parts: Collection[ReportPart],
    results: Mapping[str, JSON],
    tables: Mapping[str, TimeTable],
) -> dict[str, list[ClaimResult]]:
    """Results of the claims by source."""
    rounds = scale.real_rounds - 1
    enough = Held.HELD if rounds >= claims.LEAST_ROUNDS else Held.UNDECIDED
    strengths = {
        report.PUBLISHED: PRINTED,
        report.PAPERS: simulated("that k learners are late by t_s"),
        report.HERE: simulated("that k learners are late by t_s"),
        report.REAL: Strength(f"measured, {rounds} rounds", enough),
    }
    judged = {
        source: claims.judge_times(table, strengths[source]) for source, table in tables.items()
    }
    if report.PAPERS in judged:  # its first claim restates the cells that it was solved from
        first, *rest = judged[report.PAPERS]
        judged[report.PAPERS] = [replace(first, held=CIRCULAR.best, strength=CIRCULAR), *rest]
    if ReportPart.FIG3 in parts:
        budget = scale.budget
        judged["runs"] = [
            result
            for panel in budget.panels
            for result in (
                fig3.judge_learning(results, panel, seeds=budget.seeds),
                *fig3.judge_published(results, panel, seeds=budget.seeds),
            )
        ]
    if ReportPart.PAYLOAD in parts:
        judged["payload"] = [
            payload.judge_payload(results, panel, scale.budget)
            for panel in payload.panels(scale.budget)
        ]
    if ReportPart.CODES in parts:
        judged["decoding"] = [decoding_cost.judge_decoding(results[decoding_cost.CELL])]
    return judged


def _tables(
    scale: Wang21Scale, parts: Collection[ReportPart], results: Mapping[str, JSON]
) -> dict[str, TimeTable]:
    """Times by source."""
    tables = {}
    if ReportPart.FIG4 in parts:
        tables[report.PUBLISHED] = claims.published()
        tables[report.PAPERS] = report.predicted(results, "paper")
        tables[report.HERE] = report.predicted(results, "here")
    if ReportPart.PROCESSES in parts:
        tables[report.REAL] = claims.table(
            {setting: results[f"real-{setting.name}"]["seconds"] for setting in scale.real}
        )
    return tables


def _draw(
    scale: Wang21Scale,
    parts: Collection[ReportPart],
    results: Mapping[str, JSON],
    tables: Mapping[str, TimeTable],
    directory: Path,
) -> None:
    for source, (name, title) in report.TITLES.items():
        if source in tables:
            beside = tables[report.PUBLISHED] if source == report.PAPERS else None
            page.draw_times(tables[source], title=title, path=directory / name, beside=beside)
    if ReportPart.FIG3 in parts:
        budget, path = scale.budget, directory / "learning.png"
        fig3.draw(results, budget.panels, seeds=budget.seeds, path=path)
    if ReportPart.PAYLOAD in parts:
        payload.draw(results, scale.budget, path=directory / "payload.png")
