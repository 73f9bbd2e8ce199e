"""The cells of training by part, in two stages, and their weights."""

from collections.abc import Sequence
from pathlib import Path

from fullrank_reproduction.cells import Cell, Clock
from fullrank_reproduction.darl1n.published import TIMED
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.scales import Darl1nPart
from fullrank_reproduction.darl1n.training import (
    coded_rewards,
    contact_distance,
    crossplay,
    epc_contests,
    epc_runs,
    full_range,
    neighbour_distance,
    runs,
    scaling,
    wireless,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.published import (
    BATTLE,
    EPC,
    FOOD,
    GRASSLAND,
    ISING,
)
from fullrank_reproduction.darl1n.training.trials import Trial

TABLES = {
    Darl1nPart.ISING: ISING,
    Darl1nPart.FOOD: FOOD,
    Darl1nPart.GRASSLAND: GRASSLAND,
    Darl1nPart.BATTLE: BATTLE,
}
"""Tasks of Tables I to IV by part."""


def first_cells(
    budget: Darl1nBudget, part: Darl1nPart, directory: Path, clock: Clock
) -> list[Cell]:
    """Cells of a part without dependencies; the directory holds the teams of EPC."""
    learnt = [trial.cell({}, clock) for trial in _first(budget, part)]
    return [*_alone(budget, part, directory, clock), *learnt]


def later_cells(
    budget: Darl1nBudget, part: Darl1nPart, results: Results, directory: Path, clock: Clock
) -> list[Cell]:
    """Cells of a part that need results of the first stage, as far as these are there."""
    trained = [trial.cell(results, clock) for trial in _later(budget, part) if trial.ready(results)]
    if part is Darl1nPart.FIG4:
        return crossplay.cells(results, budget)
    if part in TABLES and TABLES[part].contest:
        trained += epc_contests.cells(budget, TABLES[part], results, directory, clock)
    return trained


def weights(budget: Darl1nBudget, part: Darl1nPart) -> dict[str, float]:
    """Seconds of all cells of a part by name, in order of magnitude."""
    alone = {cell.name: cell.weight for cell in _alone(budget, part, Path(), lambda: 0.0)}
    trained = (*_first(budget, part), *_later(budget, part))
    spent = alone | {trial.name: trial.weight for trial in trained}
    if part is Darl1nPart.FIG4:
        spent[crossplay.CELL] = 1.0
    if part in TABLES and TABLES[part].contest:
        spent |= epc_contests.weights(budget, TABLES[part])
    return spent


def _alone(budget: Darl1nBudget, part: Darl1nPart, directory: Path, clock: Clock) -> list[Cell]:
    """Cells that are no trials."""
    match part:
        case Darl1nPart.ISING | Darl1nPart.FOOD:
            return epc_runs.cells(budget, TABLES[part], directory, clock)
        case Darl1nPart.FIG2:
            return [scaling.cell(budget.timed_teams, budget.timed, clock)]
        case Darl1nPart.FIG4:
            return [epc_contests.sides(crossplay.trials(budget)[EPC], directory, clock)]
        case Darl1nPart.FIG5:
            return wireless.cells(budget, clock)
    return []


def _first(budget: Darl1nBudget, part: Darl1nPart) -> Sequence[Trial]:
    """Runs in which both sides learn, for adversaries and cross-play."""
    if part is Darl1nPart.FIG4:
        return [trial for method, trial in crossplay.trials(budget).items() if method != EPC]
    return runs.adversaries(_later(budget, part))


def _later(budget: Darl1nBudget, part: Darl1nPart) -> Sequence[Trial]:
    """Runs in which one side learns, or all agents."""
    match part:
        case Darl1nPart.ISING | Darl1nPart.FOOD | Darl1nPart.GRASSLAND | Darl1nPart.BATTLE:
            return runs.learners(budget, TABLES[part])
        case Darl1nPart.FIG3:
            return full_range.trials(budget)
        case Darl1nPart.FIG6:
            distances = neighbour_distance.DISTANCES
            return [run for d in distances for run in neighbour_distance.trials(budget, d)]
        case Darl1nPart.CONTACT:
            return contact_distance.every(budget)
        case Darl1nPart.TABLE6:
            return [run for scheme in TIMED for run in coded_rewards.trials(budget, scheme)]
    return []
