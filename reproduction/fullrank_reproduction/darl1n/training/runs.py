"""The runs behind Tables I to IV, and their curves."""

from typing import NamedTuple

from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import epc_runs
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import LearningCurve, mean_curve
from fullrank_reproduction.darl1n.training.published import (
    ENGINE_METHODS,
    TASKS,
    Darl1nTask,
    Printed,
    Size,
)
from fullrank_reproduction.darl1n.training.trials import Trial


class TeamSpec(NamedTuple):
    """A team of the tables: its task and size."""

    task: Darl1nTask
    size: Size

    def printed(self, method: str) -> Printed:
        """The paper's results of a method."""
        return self.task.printed[method][self.task.sizes.index(self.size)]

    def __str__(self) -> str:
        return f"{self.task.name}, M = {self.size.agents}"


def teams(budget: Darl1nBudget) -> list[TeamSpec]:
    """Teams of all tables."""
    return [TeamSpec(task, size) for task in TASKS for size in task.sizes[: budget.sizes]]


def trials(budget: Darl1nBudget, team: TeamSpec, method: str) -> list[Trial]:
    """One run for each seed."""
    return [
        Trial(task=team.task, size=team.size, method=method, budget=budget, seed=seed)
        for seed in range(budget.seeds)
    ]


def learners(budget: Darl1nBudget) -> list[Trial]:
    """All runs behind Tables I to IV except those of the adversaries and of EPC."""
    return [
        trial
        for team in teams(budget)
        for method in ENGINE_METHODS
        for trial in trials(budget, team, method)
    ]


def adversaries(budget: Darl1nBudget) -> list[Trial]:
    """Runs of the adversaries that the other methods meet."""
    needed = (trial.adversaries for trial in learners(budget))
    return list({trial.name: trial for trial in needed if trial is not None}.values())


def curves(results: Results, budget: Darl1nBudget, team: TeamSpec) -> dict[str, LearningCurve]:
    """Curves by method: means over the seeds or, for EPC, over the runs of a stage."""
    alone = {
        method: mean_curve([results[trial.name] for trial in trials(budget, team, method)])
        for method in ENGINE_METHODS
    }
    grown = epc_runs.names(team.task, team.size)
    return alone | {method: mean_curve(results[name]["runs"]) for method, name in grown.items()}
