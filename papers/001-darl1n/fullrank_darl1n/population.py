"""EPC's curriculum [Long20]: teams of 3, then 6 agents, bred from the best runs before.

The first stage trains teams of M agents independently. The best k runs of a stage are kept; each
pair of them, including a run paired with itself, are the parents of a run in the next stage, whose
team has twice the agents: the first half begins with the networks of the one parent, the second
with those of the other. Targets begin equal to the networks, optimiser and transitions anew.

A population is the sample of a seed, and its best run, by the last three evaluations, stands for
it; all its runs are evaluated on the same episodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement
from typing import NamedTuple, TypeAlias

import numpy as np

from fullrank.algorithms import Algorithm
from fullrank.common.seeding import derive
from fullrank.common.types import JSON, FloatArray
from fullrank.local import LocalRun
from fullrank_darl1n.published import EPC, FOOD, Darl1nScale, TeamSpec
from fullrank_darl1n.trials import Trial, curve_of
from fullrank_papers.cells import Cell, Results, settings_of

TEAMS = FOOD.sizes[:2]
"""Teams of the stages."""
RUNS = 3
"""Runs of the first stage."""
TARGETS = "target_"
SELECTED = 2
"""k, the parents of a stage; the next one has k (k + 1) / 2 runs."""

Team: TypeAlias = Mapping[tuple[str, int], FloatArray]
"""Networks by role and agent."""


class Population(NamedTuple):
    """A curriculum from one seed."""

    scale: Darl1nScale
    seed: int

    @property
    def name(self) -> str:
        """Name of its cell."""
        return f"grow-{FOOD.name}-{EPC}-seed{self.seed}"

    def cell(self) -> Cell:
        """The curriculum as a cell."""
        trials = self._trials()
        return Cell(
            name=self.name,
            settings={
                "stages": [settings_of(trial.config()) for trial in trials],
                "evaluated": [trial.evaluated() for trial in trials],
                "every": trials[0].every,
                "runs": [RUNS, SELECTED],
            },
            compute=self.grow,
            weight=RUNS * sum(each.size.agents**2 for each in trials) * self.scale.grown / 100,
            beside=True,
        )

    def grow(self) -> JSON:
        """Curves of the runs of each stage, the best run first."""
        parents: list[Sequence[Team]] = [()] * RUNS
        stages: JSON = {}
        for stage, trial in enumerate(self._trials()):
            runs = []
            for number, pair in enumerate(parents):
                seed = derive(self.seed, "population", stage, number)
                run = LocalRun(replace(trial.config(), seed=seed), coded=False)
                begin(run.training.algorithm, pair)
                runs.append((curve_of(trial, run), networks_of(run.training.algorithm)))
            runs.sort(key=lambda each: -np.mean(each[0]["returns"][-3:]))
            stages[str(trial.size.agents)] = [curve for curve, _ in runs]
            chosen = [team for _, team in runs[:SELECTED]]
            parents = list(combinations_with_replacement(chosen, 2))
        return stages

    def _trials(self) -> list[Trial]:
        make = partial(Trial, task=FOOD, method=EPC, scale=self.scale, seed=self.seed)
        return [make(size=size) for size in TEAMS]


def networks_of(algorithm: Algorithm) -> Team:
    """Copies of all networks but the targets."""
    return {
        (section.role, section.agents[0]): algorithm.parameters.view(section.id).copy()
        for section in algorithm.problem.sections
        if not section.role.startswith(TARGETS)
    }


def begin(algorithm: Algorithm, parents: Sequence[Team]) -> None:
    """Let a team begin with the agents of its parents in turn; without parents as it is."""
    teams = [(team, 1 + max(agent for _, agent in team)) for team in parents]
    for section in algorithm.problem.sections if teams else ():
        turn, agent = divmod(section.agents[0], teams[0][1])
        role = section.role.removeprefix(TARGETS)
        algorithm.parameters.view(section.id)[:] = teams[turn % len(teams)][0][role, agent]
    algorithm.parameters.written()


def populations(scale: Darl1nScale) -> list[Population]:
    """One population for each of the first seeds."""
    return [Population(scale, seed) for seed in scale.seeds[: scale.populations]]


def grown(results: Results, scale: Darl1nScale, team: TeamSpec) -> list[JSON]:
    """The best run of each population; none of teams that are not grown."""
    if team.task is not FOOD or team.size not in TEAMS:
        return []
    names = [each.name for each in populations(scale) if each.name in results]
    return [results[name][str(team.size.agents)][0] for name in names]
