"""EPC in contests: good sides against the other methods' adversaries, and both for cross-play.

Differs from the other methods in that critics take the observations and actions of the good side
alone: its adversaries do not learn, are part of the environment, and are absent from minibatches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fullrank.common.seeding import derive
from fullrank.common.types import JSON
from fullrank.environments import Environment
from fullrank.training.evaluation import Greedy
from fullrank_reproduction.acting import exploring
from fullrank_reproduction.baselines.epc.curriculum import Curriculum
from fullrank_reproduction.baselines.epc.population import best, train
from fullrank_reproduction.cells import Cell, Clock
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import epc_runs, runs
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.policies import digest_of, side_of, text_of
from fullrank_reproduction.darl1n.training.published import EPC, Darl1nTask
from fullrank_reproduction.darl1n.training.trials import Trial
from fullrank_reproduction.entities import entities_of
from fullrank_reproduction.one_side import OneSide


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest(Curriculum):
    """A curriculum of teams that consist of the good side alone.

    Each run meets the adversaries that the other methods meet with its number as their seed.
    """

    adversaries: Mapping[int, Sequence[Sequence[str]]]
    """Policies of the adversaries as text, for each seed, by M."""

    def facts(self) -> JSON:
        """All inputs of the result; policies by their digests."""
        met = {
            str(stage.agents): [digest_of(policy) for policy in self.adversaries[stage.agents]]
            for stage in self.stages
        }
        return {**Curriculum.facts(self), "adversaries": met}

    def make(self, agents: int, copies: int) -> Environment:
        """The environment of a team of a stage, with the adversaries of the first seed."""
        return self._against(agents, copies, run=0, explore=False)

    def world(self, agents: int, *, run: int) -> Environment:
        """Training environment of a run, with exploring adversaries."""
        return self._against(agents, self.practice.copies, run=run, explore=True)

    def court(self, agents: int, *, run: int) -> Environment:
        """Evaluation environment of a run."""
        return self._against(agents, self.practice.episodes, run=run, explore=False)

    def _against(self, agents: int, copies: int, *, run: int, explore: bool) -> Environment:
        whole = Curriculum.make(self, agents, copies)
        seeds = self.adversaries[agents]
        policies = seeds[run % len(seeds)]
        seed = derive(self.seed, "adversaries", run)
        others = side_of(whole.agents[: len(policies)], policies, seed=seed)
        return OneSide(
            whole,
            entities_of(whole, self.environment),
            exploring(others) if explore else Greedy(others.actor),
        )


def contest(budget: Darl1nBudget, results: Results, task: Darl1nTask) -> Curriculum:
    """A curriculum against the trained adversaries."""
    sizes = budget.grown_sizes(task)
    adversaries = {
        size.agents: [
            list(
                Trial(task=task, size=size, method=EPC, budget=budget, seed=seed)
                .met(results)
                .values()
            )
            for seed in range(budget.seeds)
        ]
        for size in sizes
    }
    return epc_runs.curriculum(budget, task, sizes, make=partial(Contest, adversaries=adversaries))


def cells(
    budget: Darl1nBudget, task: Darl1nTask, results: Results, directory: Path, clock: Clock
) -> list[Cell]:
    """One cell for each team of a contest; none before all adversaries are trained."""
    met = runs.adversaries(runs.learners(budget, task))
    if not budget.grown_sizes(task) or not all(trial.name in results for trial in met):
        return []
    return epc_runs.stages(EPC, contest(budget, results, task), directory, clock)


def weights(budget: Darl1nBudget, task: Darl1nTask) -> dict[str, float]:
    """Weights of all ``cells`` by name."""
    sizes = budget.grown_sizes(task)
    if not sizes:
        return {}
    whole = epc_runs.curriculum(budget, task, sizes)
    return {
        epc_runs.names(task, size)[EPC]: epc_runs.weight(whole, stage)
        for size, stage in zip(sizes, whole.stages, strict=True)
    }


def sides(trial: Trial, directory: Path, clock: Clock) -> Cell:
    """The best team's policies, after a curriculum up to its size in which both sides learn."""
    sizes = trial.task.sizes[: trial.task.sizes.index(trial.size) + 1]
    whole = epc_runs.curriculum(trial.budget, trial.task, sizes, both=True)
    return Cell(
        name=trial.name,
        settings=whole.facts(),
        compute=partial(_sides, whole, epc_runs.place(whole, directory), clock),
        weight=sum(epc_runs.weight(whole, stage) for stage in whole.stages),
        beside=True,
    )


def _sides(whole: Curriculum, directory: Path, clock: Clock) -> JSON:
    runs = list(train(whole, directory, clock=clock))
    (results,) = best([run for run in runs if run.stage == len(whole.stages) - 1], 1)
    return {"policies": [text_of(policy) for policy in results.parameters["policy"]]}
