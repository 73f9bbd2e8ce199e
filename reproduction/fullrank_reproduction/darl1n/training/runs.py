"""The runs behind Tables I to IV, and their curves."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from fullrank.common.types import Array
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
    return [TeamSpec(task, size) for task in TASKS for size in budget.sizes_of(task)]


def trials(budget: Darl1nBudget, team: TeamSpec, method: str) -> list[Trial]:
    """One run for each seed."""
    return [
        Trial(task=team.task, size=team.size, method=method, budget=budget, seed=seed)
        for seed in range(budget.seeds)
    ]


def learners(budget: Darl1nBudget, task: Darl1nTask) -> list[Trial]:
    """All runs of a table except those of the adversaries and of EPC, small teams first."""
    return [
        trial
        for size in budget.sizes_of(task)
        for method in ENGINE_METHODS
        for trial in trials(budget, TeamSpec(task, size), method)
    ]


def adversaries(runs: Iterable[Trial]) -> list[Trial]:
    """Runs of the adversaries that some runs meet."""
    needed = (trial.adversaries for trial in runs)
    return list({trial.name: trial for trial in needed if trial is not None}.values())


def seeds(results: Results, budget: Darl1nBudget, team: TeamSpec) -> list[int]:
    """Seeds from which all methods of the engine have trained a team."""
    own = [trials(budget, team, method) for method in ENGINE_METHODS]
    return [seed for seed in range(budget.seeds) if all(runs[seed].name in results for runs in own)]


def trained(results: Results, budget: Darl1nBudget) -> list[TeamSpec]:
    """Teams of all tables that have a seed."""
    return [team for team in teams(budget) if seeds(results, budget, team)]


def curves(results: Results, budget: Darl1nBudget, team: TeamSpec) -> dict[str, LearningCurve]:
    """Curves by method: means over the ``seeds`` or, for EPC, over the runs of a stage."""
    whole = seeds(results, budget, team)
    alone = {
        method: mean_curve([results[trials(budget, team, method)[seed].name] for seed in whole])
        for method in ENGINE_METHODS
        if whole
    }
    grown = {
        method: mean_curve(results[name]["runs"])
        for method, name in epc_runs.names(team.task, team.size).items()
        if name in results
    }
    return alone | grown


def ends(results: Results, budget: Darl1nBudget, team: TeamSpec, methods: Sequence[str]) -> Array:
    """Final returns, shape (methods, ``seeds``)."""
    return np.array(
        [
            [
                mean_curve([results[trials(budget, team, method)[seed].name]]).end
                for seed in seeds(results, budget, team)
            ]
            for method in methods
        ]
    )
