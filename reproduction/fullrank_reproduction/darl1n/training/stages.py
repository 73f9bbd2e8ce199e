"""The cells of training, and how long they may take."""

from collections.abc import Sequence
from pathlib import Path

from fullrank_reproduction.cells import Cell
from fullrank_reproduction.darl1n.readings import Found
from fullrank_reproduction.darl1n.training import (
    contests,
    crossplay,
    distances,
    growing,
    plan,
    scaling,
    wireless,
)
from fullrank_reproduction.darl1n.training.effort import Effort
from fullrank_reproduction.darl1n.training.published import EPC
from fullrank_reproduction.darl1n.training.trials import Trial
from fullrank_reproduction.timing import Clock


def first_cells(effort: Effort, directory: Path, clock: Clock) -> list[Cell]:
    """Those that wait for nothing; the directory keeps the teams that grow."""
    return [*_alone(effort, directory, clock), *(each.cell({}, clock) for each in _first(effort))]


def later_cells(effort: Effort, found: Found, directory: Path, clock: Clock) -> list[Cell]:
    """Those that need what the first ones found."""
    trained = [each.cell(found, clock) for each in _later(effort)]
    grown = contests.cells(effort, found, directory, clock)
    return [crossplay.cell(found, effort), *trained, *grown]


def work(effort: Effort) -> float:
    """The sum of all weights."""
    alone = sum(each.weight for each in _alone(effort, Path(), lambda: 0.0))
    trained = sum(each.weight for each in (*_first(effort), *_later(effort)))
    return alone + trained + contests.work(effort) + 1.0  # cross-play


def _alone(effort: Effort, directory: Path, clock: Clock) -> list[Cell]:
    return [
        scaling.cell(effort.timed_teams, effort.timed, clock),
        *wireless.cells(effort, clock),
        *growing.cells(effort, directory, clock),
        contests.sides(crossplay.trials(effort)[EPC], directory, clock),
    ]


def _first(effort: Effort) -> Sequence[Trial]:
    """Both sides learn; MADDPG's of the first seed also meet other methods' sides."""
    met = [each for method, each in crossplay.trials(effort).items() if method != EPC]
    return list({trial.name: trial for trial in (*plan.adversaries(effort), *met)}.values())


def _later(effort: Effort) -> Sequence[Trial]:
    """The good side learns, where there are two."""
    swept = [each for d in distances.DISTANCES for each in distances.trials(effort, d)]
    return [*plan.learners(effort), *swept]
