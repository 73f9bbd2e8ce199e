"""Curriculum of EPC: stages of growing teams, and the training and selection of runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.environments import Environment, make_environment
from fullrank.environments.lattice.environment import LatticeEnvironment
from fullrank_reproduction.baselines.epc.practice import Practice
from fullrank_reproduction.baselines.epc.team import Team, sides_of
from fullrank_reproduction.entities import entities_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Teams of one size."""

    agents: int
    """Number of agents, M."""
    iterations: int
    """Iterations of each run."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the environment at this size, in addition to those of the curriculum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """Stages, populations and all other inputs that determine the result."""

    environment: str
    """Registered name of a task on a lattice or in an arena."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the environment at every size."""
    stages: tuple[Stage, ...]
    """Stages in order; each has twice the agents of the previous one, on a lattice more agents."""
    runs: int = 3
    """Number of runs in the first stage."""
    selected: int = 2
    """k, the number of parents in a stage; the next stage has k (k + 1) / 2 runs."""
    seed: int = 0
    practice: Practice = field(default_factory=Practice)

    def __post_init__(self) -> None:
        if not self.stages or min(stage.iterations for stage in self.stages) < 1:
            raise ConfigError("a curriculum needs a stage, and each of them an iteration")
        if not 1 <= self.selected <= self.runs:
            raise ConfigError(
                f"of {self.runs} runs {self.selected} cannot be selected; "
                "let selected be from 1 to runs"
            )
        for before, after in pairwise(stage.agents for stage in self.stages):
            self._require_growth(before, after)

    def _require_growth(self, before: int, after: int) -> None:
        """Raise ``ConfigError`` unless a team of the second size can follow one of the first."""
        teams = [self.make(agents, 1) for agents in (before, after)]
        small, large = ([part.stop - part.start for part in sides_of(t.agents)] for t in teams)
        if isinstance(teams[0], LatticeEnvironment):
            if large <= small:
                raise ConfigError(
                    f"a stage of {after} agents follows one of {before}; on a lattice every stage "
                    "needs more agents than the one before, as 9, 16, 25, 64"
                )
        elif large != [2 * size for size in small]:
            raise ConfigError(
                f"sides of {large} agents follow sides of {small}; every stage must double every "
                "side of the one before, as 3, 6, 12, 24"
            )

    def scratch(self) -> "Curriculum":
        """EPC from scratch: a single run of the last stage."""
        return replace(self, stages=self.stages[-1:], runs=1, selected=1)

    def facts(self) -> JSON:
        """All inputs that determine the result."""
        return asdict(self)

    def make(self, agents: int, copies: int) -> Environment:
        """The environment of a team of the given size, with the parameters of its stage."""
        own = {stage.agents: stage.params for stage in self.stages}.get(agents, {})
        params = {**self.params, **own}
        return make_environment(self.environment, agents=agents, copies=copies, **params)

    def world(self, agents: int, *, run: int) -> Environment:
        """Training environment of a run; the same for all runs of a stage."""
        return self.make(agents, self.practice.copies)

    def court(self, agents: int, *, run: int) -> Environment:
        """Evaluation environment of a run; the same for all runs of a stage."""
        return self.make(agents, self.practice.episodes)

    def team(self, agents: int, *, seed: int = 0) -> Team:
        """An untrained team; ``Team.begin`` gives it the parameters of a run."""
        world = self.make(agents, 1)
        return Team(world.agents, entities_of(world, self.environment), seed=seed)
