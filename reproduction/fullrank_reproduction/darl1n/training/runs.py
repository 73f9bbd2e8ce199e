"""The runs behind Tables I to IV, and their curves."""

from typing import NamedTuple

from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import epc_runs
from fullrank_reproduction.darl1n.training.budget import Budget
from fullrank_reproduction.darl1n.training.convergence import Curve, mean_curve
from fullrank_reproduction.darl1n.training.published import OURS, TASKS, Printed, Size, Task
from fullrank_reproduction.darl1n.training.trials import Trial


class Team(NamedTuple):
    """A column of a table."""

    task: Task
    size: Size

    def printed(self, method: str) -> Printed:
        """The paper's results of a method."""
        return self.task.printed[method][self.task.sizes.index(self.size)]

    def __str__(self) -> str:
        return f"{self.task.name}, M = {self.size.agents}"


def teams(budget: Budget) -> list[Team]:
    """Teams of all tables."""
    return [Team(task, size) for task in TASKS for size in task.sizes[: budget.sizes]]


def trials(budget: Budget, team: Team, method: str) -> list[Trial]:
    """One run for each seed."""
    return [
        Trial(task=team.task, size=team.size, method=method, budget=budget, seed=seed)
        for seed in range(budget.seeds)
    ]


def learners(budget: Budget) -> list[Trial]:
    """All runs behind Tables I to IV except those of the adversaries and of EPC."""
    return [
        trial for team in teams(budget) for method in OURS for trial in trials(budget, team, method)
    ]


def adversaries(budget: Budget) -> list[Trial]:
    """Runs of the adversaries that the other methods meet."""
    needed = (trial.adversaries for trial in learners(budget))
    return list({each.name: each for each in needed if each is not None}.values())


def curves(found: Results, budget: Budget, team: Team) -> dict[str, Curve]:
    """Curves by method: means over the seeds or, for EPC, over the runs of a stage."""
    alone = {
        method: mean_curve([found[trial.name] for trial in trials(budget, team, method)])
        for method in OURS
    }
    grown = epc_runs.names(team.task, team.size)
    return alone | {method: mean_curve(found[name]["runs"]) for method, name in grown.items()}
