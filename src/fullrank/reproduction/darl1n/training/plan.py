"""Which runs an effort takes, and their results."""

from collections.abc import Mapping
from typing import NamedTuple

from fullrank.reproduction.cells import Cell
from fullrank.reproduction.darl1n.training import scaling
from fullrank.reproduction.darl1n.training.convergence import Curve, mean_curve
from fullrank.reproduction.darl1n.training.published import OURS, TASKS, Printed, Size, Task
from fullrank.reproduction.darl1n.training.trials import Clock, Effort, Trial
from fullrank.types import JSON

Found = Mapping[str, JSON]
"""Results by cell."""


class Team(NamedTuple):
    """A column of a table."""

    task: Task
    size: Size

    def printed(self, method: str) -> Printed:
        """What the paper says of a method."""
        return self.task.printed[method][self.task.sizes.index(self.size)]

    def __str__(self) -> str:
        return f"{self.task.name}, M = {self.size.agents}"


def teams(effort: Effort) -> list[Team]:
    """Of all tables."""
    return [Team(task, size) for task in TASKS for size in task.sizes[: effort.sizes]]


def trials(effort: Effort, team: Team, method: str) -> list[Trial]:
    """One for each seed."""
    return [
        Trial(task=team.task, size=team.size, method=method, effort=effort, seed=seed)
        for seed in range(effort.seeds)
    ]


def learners(effort: Effort) -> list[Trial]:
    """All runs behind Tables I to IV but those of the adversaries."""
    return [
        trial for team in teams(effort) for method in OURS for trial in trials(effort, team, method)
    ]


def adversaries(effort: Effort) -> list[Trial]:
    """Whose policies the others meet."""
    needed = {each.name: each for trial in learners(effort) if (each := trial.adversaries)}
    return list(needed.values())


def first_cells(effort: Effort, clock: Clock) -> list[Cell]:
    """Those that wait for nothing."""
    return [
        scaling.cell(effort.timed_teams, effort.timed, clock),
        *(each.cell({}, clock) for each in adversaries(effort)),
    ]


def later_cells(effort: Effort, found: Found, clock: Clock) -> list[Cell]:
    """Those that need what the first ones found."""
    return [each.cell(found, clock) for each in learners(effort)]


def size(effort: Effort) -> int:
    """Cells in all."""
    return 1 + len(adversaries(effort)) + len(learners(effort))


def curves(found: Found, effort: Effort, team: Team) -> dict[str, Curve]:
    """Means over the seeds, by method."""
    return {
        method: mean_curve([found[trial.name] for trial in trials(effort, team, method)])
        for method in OURS
    }
