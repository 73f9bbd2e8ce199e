"""Evolutionary population curriculum (EPC): growing teams, bred from the best runs.

Long, Zhou, Gupta, Fang, Wu, Wang: Evolutionary Population Curriculum for Scaling Multi-Agent
Reinforcement Learning, ICLR 2020, arXiv:2003.10423, as the baseline of [DARL1N], Sec. VI. The runs
of the first stage train teams of M agents independently. The best k runs of each stage are kept;
each pair of them, including a run paired with itself, forms the parents of a run in the next stage,
whose team has twice the agents: the first half of a side begins with the networks of the one
parent's side, the second half with those of the other's.

Differs from the sources in:

- In a contest both sides learn together, and parents are chosen by the return of the side of the
  last agent, in [DARL1N] the good one; [Long20] chooses parents for each side by playing all
  against all.
- On a lattice, whose teams are squares and cannot double, agent j of the new team begins with the
  networks of agent j mod M, of the parents in turn for each M agents.
- Targets begin equal to the networks, and optimiser and transitions begin anew in each stage.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fullrank.common.errors import CheckpointUnusable
from fullrank.common.seeding import derive
from fullrank.common.types import FloatArray
from fullrank.environments.base import AgentSpec
from fullrank.runs.checkpoint import newest, save
from fullrank_reproduction.baselines.epc.curriculum import Curriculum
from fullrank_reproduction.baselines.epc.practice import Point, practise
from fullrank_reproduction.baselines.epc.team import sides_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedTeam:
    """A trained team."""

    stage: int
    """Index of the stage, 0-based."""
    number: int
    """Index within the stage, 0-based."""
    parents: tuple[int, ...]
    """Numbers of two runs of the previous stage; empty in the first."""
    points: tuple[Point, ...]
    """Evaluations of the run."""
    parameters: Mapping[str, FloatArray]
    """Parameters of each network, one row for each agent."""

    @property
    def score(self) -> float:
        """Mean return of the last evaluation."""
        return self.points[-1].mean_return


def train(
    curriculum: Curriculum, directory: Path, *, clock: Callable[[], float]
) -> Iterator[TrainedTeam]:
    """Train all runs of all stages that are not trained yet.

    Args:
        curriculum: The curriculum.
        directory: Holds every finished run; an interrupted curriculum continues from them, to the
            same result.
        clock: Time in seconds for the duration of iterations, for example ``time.process_time``.

    Yields:
        All runs, stage by stage; the best of the last stage is the result.

    Raises:
        CheckpointUnusable: The directory holds runs of another curriculum.
    """
    population: list[TrainedTeam] = []
    for stage in range(len(curriculum.stages)):
        origins: list[tuple[TrainedTeam, ...]] = [()] * curriculum.runs
        if stage:
            chosen = best(population, curriculum.selected)
            origins = list(combinations_with_replacement(chosen, 2))
        population = []
        for number, parents in enumerate(origins):
            entry = _Entry(curriculum, directory, stage, number, parents)
            run = entry.stored() or entry.train(clock)
            population.append(run)
            yield run


def best(population: Sequence[TrainedTeam], count: int) -> list[TrainedTeam]:
    """Runs with the highest scores, best first; ties by number."""
    return sorted(population, key=lambda run: -run.score)[:count]


def mixed(
    parents: Sequence[TrainedTeam], before: Sequence[AgentSpec], after: Sequence[AgentSpec]
) -> dict[str, FloatArray]:
    """Parameters of a larger team: sides of the parents in turn, until it is full.

    Args:
        parents: Runs of one stage.
        before: The agents of their teams.
        after: The agents of the larger team.
    """
    parent, row = list[int](), list[int]()
    for old, new in zip(sides_of(before), sides_of(after), strict=True):
        turn, place = np.divmod(np.arange(new.stop - new.start), old.stop - old.start)
        parent += (turn % len(parents)).tolist()
        row += (old.start + place).tolist()
    return {
        name: np.stack([run.parameters[name] for run in parents])[parent, row]
        for name in parents[0].parameters
    }


class _Entry(NamedTuple):
    """One run of a curriculum and its directory."""

    curriculum: Curriculum
    directory: Path
    stage: int
    number: int
    parents: tuple[TrainedTeam, ...]

    @property
    def place(self) -> Path:
        """The directory of this run."""
        return self.directory / f"stage-{self.stage}" / f"run-{self.number}"

    @property
    def plan(self) -> str:
        """All inputs of this run; later stages do not change them."""
        stages = self.curriculum.stages[: self.stage + 1]
        return json.dumps(replace(self.curriculum, stages=stages).facts(), sort_keys=True)

    def stored(self) -> TrainedTeam | None:
        """The stored run, if it is finished and undamaged."""
        try:
            checkpoint = newest(self.place)
        except CheckpointUnusable:
            return None
        if checkpoint.facts["plan"] != self.plan:
            raise CheckpointUnusable(
                f"{self.place}: a run of another curriculum; use another directory, or remove it"
            )
        points = [Point(*point) for point in checkpoint.facts["points"]]
        return self._run(points, checkpoint.arrays)

    def train(self, clock: Callable[[], float]) -> TrainedTeam:
        """Train and store the run."""
        curriculum, size = self.curriculum, self.curriculum.stages[self.stage]
        seed = derive(curriculum.seed, "run", self.stage, self.number)
        team = curriculum.team(size.agents, seed=seed)
        if self.parents:
            smaller = curriculum.stages[self.stage - 1].agents
            sizes = (curriculum.make(agents, 1).agents for agents in (smaller, size.agents))
            team.begin(mixed(self.parents, *sizes))
        world = curriculum.world(size.agents, run=self.number)
        court = curriculum.court(size.agents, run=self.number)
        with closing(world), closing(court):
            lessons = practise(
                team,
                world,
                court,
                curriculum.practice,
                iterations=size.iterations,
                seed=seed,
                evaluation_seed=curriculum.seed,
                clock=clock,
            )
            points = list(lessons)
        facts = {"plan": self.plan, "points": points}
        arrays = team.parameters()
        save(self.place, iteration=size.iterations, arrays=arrays, facts=facts, keep=1)
        return self._run(points, arrays)

    def _run(self, points: Sequence[Point], parameters: Mapping[str, FloatArray]) -> TrainedTeam:
        return TrainedTeam(
            stage=self.stage,
            number=self.number,
            parents=tuple(parent.number for parent in self.parents),
            points=tuple(points),
            parameters=parameters,
        )
