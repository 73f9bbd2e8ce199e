"""Which runs an effort takes, and their results."""

from typing import NamedTuple

from fullrank_reproduction.darl1n.readings import Found
from fullrank_reproduction.darl1n.training import growing
from fullrank_reproduction.darl1n.training.convergence import Curve, mean_curve
from fullrank_reproduction.darl1n.training.effort import Effort
from fullrank_reproduction.darl1n.training.published import OURS, TASKS, Printed, Size, Task
from fullrank_reproduction.darl1n.training.trials import Trial


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
    """All runs behind Tables I to IV but those of the adversaries and of EPC."""
    return [
        trial for team in teams(effort) for method in OURS for trial in trials(effort, team, method)
    ]


def adversaries(effort: Effort) -> list[Trial]:
    """Whose policies the others meet."""
    needed = (trial.adversaries for trial in learners(effort))
    return list({each.name: each for each in needed if each is not None}.values())


def curves(found: Found, effort: Effort, team: Team) -> dict[str, Curve]:
    """Means over the seeds, of EPC over the runs of its stage, by method."""
    alone = {
        method: mean_curve([found[trial.name] for trial in trials(effort, team, method)])
        for method in OURS
    }
    grown = growing.names(team.task, team.size)
    return alone | {method: mean_curve(found[name]["runs"]) for method, name in grown.items()}
