"""The cells of training in two stages, and their weights."""

from collections.abc import Sequence
from pathlib import Path

from fullrank_reproduction.cells import Cell, Clock
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import (
    crossplay,
    epc_contests,
    epc_runs,
    neighbour_distance,
    runs,
    scaling,
    wireless,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.published import EPC
from fullrank_reproduction.darl1n.training.trials import Trial


def first_cells(budget: Darl1nBudget, directory: Path, clock: Clock) -> list[Cell]:
    """Cells without dependencies; the directory holds the teams of EPC."""
    return [*_alone(budget, directory, clock), *(trial.cell({}, clock) for trial in _first(budget))]


def later_cells(
    budget: Darl1nBudget, results: Results, directory: Path, clock: Clock
) -> list[Cell]:
    """Cells that need results of the first stage."""
    trained = [trial.cell(results, clock) for trial in _later(budget)]
    grown = epc_contests.cells(budget, results, directory, clock)
    return [crossplay.cell(results, budget), *trained, *grown]


def work(budget: Darl1nBudget) -> float:
    """Sum of all weights."""
    alone = sum(trial.weight for trial in _alone(budget, Path(), lambda: 0.0))
    trained = sum(trial.weight for trial in (*_first(budget), *_later(budget)))
    return alone + trained + epc_contests.work(budget) + 1.0  # cross-play


def _alone(budget: Darl1nBudget, directory: Path, clock: Clock) -> list[Cell]:
    return [
        scaling.cell(budget.timed_teams, budget.timed, clock),
        *wireless.cells(budget, clock),
        *epc_runs.cells(budget, directory, clock),
        epc_contests.sides(crossplay.trials(budget)[EPC], directory, clock),
    ]


def _first(budget: Darl1nBudget) -> Sequence[Trial]:
    """Runs in which both sides learn, for adversaries and cross-play."""
    met = [trial for method, trial in crossplay.trials(budget).items() if method != EPC]
    return list({trial.name: trial for trial in (*runs.adversaries(budget), *met)}.values())


def _later(budget: Darl1nBudget) -> Sequence[Trial]:
    """Runs in which the good side learns, in tasks with two sides."""
    swept = [
        trial
        for d in neighbour_distance.DISTANCES
        for trial in neighbour_distance.trials(budget, d)
    ]
    return [*runs.learners(budget), *swept]
