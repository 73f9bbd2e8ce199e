"""The cells of training in two stages, and their weights."""

from collections.abc import Sequence
from pathlib import Path

from fullrank_reproduction.cells import Cell
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
from fullrank_reproduction.darl1n.training.budget import Budget
from fullrank_reproduction.darl1n.training.published import EPC
from fullrank_reproduction.darl1n.training.trials import Trial
from fullrank_reproduction.timing import Clock


def first_cells(budget: Budget, directory: Path, clock: Clock) -> list[Cell]:
    """Cells without dependencies; the directory holds the teams of EPC."""
    return [*_alone(budget, directory, clock), *(each.cell({}, clock) for each in _first(budget))]


def later_cells(budget: Budget, found: Results, directory: Path, clock: Clock) -> list[Cell]:
    """Cells that need results of the first stage."""
    trained = [each.cell(found, clock) for each in _later(budget)]
    grown = epc_contests.cells(budget, found, directory, clock)
    return [crossplay.cell(found, budget), *trained, *grown]


def work(budget: Budget) -> float:
    """Sum of all weights."""
    alone = sum(each.weight for each in _alone(budget, Path(), lambda: 0.0))
    trained = sum(each.weight for each in (*_first(budget), *_later(budget)))
    return alone + trained + epc_contests.work(budget) + 1.0  # cross-play


def _alone(budget: Budget, directory: Path, clock: Clock) -> list[Cell]:
    return [
        scaling.cell(budget.timed_teams, budget.timed, clock),
        *wireless.cells(budget, clock),
        *epc_runs.cells(budget, directory, clock),
        epc_contests.sides(crossplay.trials(budget)[EPC], directory, clock),
    ]


def _first(budget: Budget) -> Sequence[Trial]:
    """Runs in which both sides learn, for adversaries and cross-play."""
    met = [each for method, each in crossplay.trials(budget).items() if method != EPC]
    return list({trial.name: trial for trial in (*runs.adversaries(budget), *met)}.values())


def _later(budget: Budget) -> Sequence[Trial]:
    """Runs in which the good side learns, in tasks with two sides."""
    swept = [
        each for d in neighbour_distance.DISTANCES for each in neighbour_distance.trials(budget, d)
    ]
    return [*runs.learners(budget), *swept]
