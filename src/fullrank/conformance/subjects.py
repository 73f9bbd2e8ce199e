"""Subjects of the laws of algorithms: teams, minibatches, updates, and short runs of training."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fullrank.algorithms import (
    Algorithm,
    AlgorithmConfig,
    EnvironmentSpec,
    algorithms,
    environment_spec,
)
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.problem import Problem
from fullrank.algorithms.sum_optimiser import SumOptimiser
from fullrank.algorithms.updates import Entries
from fullrank.codes.targets import LIMIT, target_sizes
from fullrank.common.errors import CodeError, ConfigError
from fullrank.common.types import BoolArray, FloatArray, UnitIndex
from fullrank.common.updates import GRID
from fullrank.config import RunConfig, load
from fullrank.config.code import code_of
from fullrank.config.tree import PluginSettings
from fullrank.environments import AgentSpec, Continuous, Discrete, MultiDiscrete, make_environment
from fullrank.environments.base import ActionSpec
from fullrank.local import LocalRun
from fullrank.networks.parameters import EXPONENT
from fullrank.replay.episodes import NO_ACTION
from fullrank.replay.layout import Layout
from fullrank.training.centralised import Centralised

WORLD = "food_collection"
"""Environment of algorithms whose learners collect."""
SEED = 11
BATCH, HIDDEN = 100, 33
"""Size of a minibatch and of hidden layers, where these are settings."""
MOST_EPISODES = 23
"""Upper bound on the episodes of a minibatch, whose steps are computed one after the other."""


def _scout(name: str, side: str) -> AgentSpec:
    return AgentSpec(
        name=name,
        observation_size=7,
        action=Discrete(5, relaxed=True),
        side=side,
        always_zero=(2, 5, 6),
    )


_GRIPPER = AgentSpec(
    name="gripper",
    observation_size=13,
    action=Continuous((-1.0, 0.0), (1.0, 3.0)),
    always_zero=(0,),
)
MIXED = (  # of two sides, so that both kinds of critics are computed
    _scout("scout", "team"),
    _GRIPPER,
    _scout("scout_2", "lone"),
    AgentSpec(name="guard", observation_size=7, action=Discrete(3), side="lone"),
    _scout("scout_3", "team"),
    _scout("scout_4", "lone"),
)
"""Agents of unequal observations and actions, of which some agree."""


def alike(count: int, action: ActionSpec, *, observation: int = 5) -> list[AgentSpec]:
    """Return agents of one side with equal observations and actions."""
    return [
        AgentSpec(name=f"agent_{i}", observation_size=observation, action=action, side="team")
        for i in range(count)
    ]


TEAMS: Mapping[str, Sequence[AgentSpec]] = {
    "of unequal agents": MIXED,
    "of discrete actions": tuple(spec for spec in MIXED if isinstance(spec.action, Discrete)),
    "of continuous actions": (_GRIPPER, *alike(2, Continuous((-2.0,), (1.0,)))),
    "of equal discrete agents": alike(3, Discrete(4)),
    "of equal continuous agents": alike(3, Continuous((-1.0, 0.0), (1.0, 3.0))),
    "of agents with several choices": alike(3, MultiDiscrete((3, 2, 4))),
}
"""Teams by their kind; the laws hold for the first one that an algorithm does not refuse."""


@dataclass(frozen=True)
class Subject:
    """An algorithm with settings, and what the laws compute with it.

    Args:
        name: Registered name.
        settings: Its settings; ``batch_size`` and ``hidden`` are those of the laws.
        in_teams: Further settings that name agents or sides of ``TEAMS``.
        agents: Team in place of the first of ``TEAMS`` that the algorithm trains.
        world: Options of an environment with such agents, in which short runs are trained.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    in_teams: Mapping[str, Any] = field(default_factory=dict)
    agents: Sequence[AgentSpec] = ()
    world: Mapping[str, Any] = field(default_factory=dict)

    def config(self, *, batch: int = BATCH, hidden: int = HIDDEN) -> AlgorithmConfig:
        """Return the configuration with minibatches and hidden layers of these sizes."""
        if batch > MOST_EPISODES and self.plays_episodes:
            batch = MOST_EPISODES
        return self._configured(batch=batch, hidden=hidden)

    def _configured(self, **sizes: int) -> AlgorithmConfig:
        wanted = {"batch_size": sizes["batch"], "hidden": sizes["hidden"], **self.settings}
        wanted |= self.in_teams
        cls = algorithms.get(self.name)
        known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
        sized = {key for key in ("batch_size", "hidden") if key not in known}
        return algorithms.build(
            self.name, **{key: value for key, value in wanted.items() if key not in sized}
        )

    def of(self, **settings: Any) -> "Subject":
        """Return the same with other settings."""
        return replace(self, settings={**self.settings, **settings})

    @cached_property
    def collects(self) -> bool:
        """Tell whether learners collect their transitions, in ``WORLD``."""
        return self._small.data_mode().kind != "shared"

    @cached_property
    def _small(self) -> AlgorithmConfig:
        return self._configured(batch=MOST_EPISODES, hidden=HIDDEN)

    @cached_property
    def plays_episodes(self) -> bool:
        """Tell whether the minibatch consists of whole episodes."""
        return self._small.problem(self.spec()).episodes is not None

    @cached_property
    def team(self) -> Sequence[AgentSpec]:
        """The first of ``TEAMS`` that the algorithm trains; those of ``WORLD`` if learners collect.

        Raises:
            ConfigError: It refuses all of them.
        """
        if self.agents:
            return self.agents
        if self.collects:
            return make_environment(WORLD, agents=4, copies=1).agents
        refusals = list[str]()
        for kind, agents in TEAMS.items():
            try:
                self._small.problem(self.spec(agents))
            except ConfigError as error:
                refusals.append(f"{kind}: {error}")
            else:
                return agents
        raise ConfigError(f"{self.name} refuses every team; a team {'; a team '.join(refusals)}")

    def spec(self, agents: Sequence[AgentSpec] = ()) -> EnvironmentSpec:
        """Return the environment of some agents, by default of the team."""
        return environment_spec(agents or self.team, environment=WORLD, count=4, params={})

    def build(
        self,
        *,
        batch: int = BATCH,
        hidden: int = HIDDEN,
        seed: int = SEED,
        agents: Sequence[AgentSpec] = (),
        device: str = "cpu",
    ) -> Algorithm:
        """Make the algorithm."""
        config = self.config(batch=batch, hidden=hidden)
        return config.make(self.spec(agents), seed=seed, device=device)

    def layout(self, agents: Sequence[AgentSpec] = ()) -> Layout:
        """Return the layout of transitions of some agents, by default of the team."""
        return layout_of(agents or self.team)

    def transitions(
        self, size: int = BATCH, *, seed: int = 0, agents: Sequence[AgentSpec] = ()
    ) -> FloatArray:
        """Return random rows in which agents die or are dead; none if learners collect."""
        generator, where = np.random.default_rng(seed), self.layout(agents)
        config = self.config(batch=size)
        size = config.data_mode().batch_size
        if (episodes := config.problem(self.spec(agents)).episodes) is not None:
            rows = episodes.synthetic(generator, size)
            masks = generator.random((len(rows), sum(where.action_sizes))) < 0.7
            rows[:, episodes.available] = masks
            rows[1::3, episodes.action.start] = NO_ACTION
            rows[2::3, episodes.earns] = 0.0
            return rows
        rows = generator.standard_normal((size, where.row_size), dtype=np.float32)
        rows[:, where.terminated] = generator.random((size, where.agents)) < 0.2
        rows[:, where.alive] = generator.random((size, where.agents)) < 0.8
        return rows


def units_of(algorithm: Algorithm) -> range:
    """Return the indices of an algorithm's units."""
    return range(len(algorithm.problem.units))


def random_updates(algorithm: Algorithm, *, seed: int) -> FloatArray:
    """Return random targets on the grid, for the optimiser."""
    generator, problem = np.random.default_rng(seed), algorithm.problem
    sizes = problem.unit_sizes
    if problem.target is not None:
        sizes = target_sizes(problem.target, sizes)
    updates = np.zeros((len(sizes), problem.vector_size), np.float32)
    for target, size in enumerate(sizes):
        updates[target, :size] = np.rint(generator.standard_normal(size) * 1000) * GRID
    return updates


def computed(
    algorithm: Algorithm, batch: FloatArray, units: Sequence[UnitIndex], *, iteration: int = 5
) -> dict[UnitIndex, bytes]:
    """Return the bits of the updates of some units."""
    return {
        unit: update.tobytes()
        for unit, update in algorithm.gradients.compute(batch, units, iteration=iteration)
    }


def draws(algorithm: Algorithm, rows: FloatArray) -> bool:
    """Return whether updates depend on the iteration, as those that draw random numbers do."""
    units = units_of(algorithm)
    first, second = (computed(algorithm, rows, units, iteration=each) for each in (5, 6))
    return bool(differing(first, second))


def sums(algorithm: Algorithm, rows: FloatArray) -> Iterator[tuple[NDArray[np.float64], BoolArray]]:
    """Yield the sum of each group's gradients, and where no unit was clamped."""
    problem, found = algorithm.problem, dict[tuple[int, ...], list[FloatArray]]()
    sizes = Counter[tuple[int, ...]]()
    for section in problem.sections:
        if not section.role.startswith("target_") and section.role != EXPONENT:
            sizes[section.agents] += section.size
    for unit, update in algorithm.gradients.compute(rows, units_of(algorithm), iteration=5):
        agents = problem.units[unit].agents
        found.setdefault(agents, []).append(update[: sizes[agents]].copy())
    for number, agents in enumerate(sizes):
        every = np.array(found[agents], np.float64)
        whole, unclamped = every.sum(0), np.all(np.abs(every) < LIMIT, axis=0)
        if isinstance(algorithm.optimiser, SumOptimiser):  # its sums may hold moments, too
            whole = algorithm.optimiser.gradient(number, torch.from_numpy(whole)).numpy()
        yield whole, unclamped


def recorded(algorithm: Algorithm, rows: FloatArray) -> Mapping[str, float]:
    """Return what the optimiser records of an update from these rows."""
    central = Centralised(algorithm.problem, algorithm.gradients, seed=0)
    return algorithm.optimiser.step(central.compute(rows, iteration=5).updates)


def companies(count: int, *, seed: int) -> Iterator[list[UnitIndex]]:
    """Yield units in company of every size and in random order."""
    generator = np.random.default_rng(seed)
    for width in range(1, count + 1):
        yield [int(unit) for unit in generator.permutation(count)[:width]]


def differing(one: Mapping[Any, bytes], other: Mapping[Any, bytes]) -> list[Any]:
    """Return the keys whose bits differ."""
    return [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)]


def same(one: Mapping[Any, bytes], other: Mapping[Any, bytes], *, cause: str = "") -> None:
    """Assert equal bits; a failure shows the keys that differ, and not their bits."""
    different = differing(one, other)
    assert not different, f"{different} differ: {cause}"


def sections_of(algorithm: Algorithm) -> dict[int, bytes]:
    """Return the bits of all sections."""
    sections = algorithm.problem.sections
    return {each.id: algorithm.parameters.view(each.id).tobytes() for each in sections}


def state_of(algorithm: Algorithm) -> dict[str, bytes]:
    """Return the bits of the optimiser's state."""
    return {key: value.tobytes() for key, value in algorithm.optimiser.state().items()}


WORLDS: tuple[Mapping[str, Any], ...] = (
    {"environment.name": "cooperative_navigation", "environment.agents": 3},
    {"environment.name": "switch_riddle"},
    {"environment.name": "food_collection", "environment.agents": 3},
    {
        "environment.name": "pettingzoo",
        "environment.factory": "fullrank.conformance.worlds:gathering",
    },
)
"""Environments, in the first of which that an algorithm does not refuse it is trained."""


def trained(subject: Subject) -> RunConfig:
    """Return a short run in the subject's world, or in the first of ``WORLDS`` that it accepts.

    Raises:
        ConfigError: It refuses all of them.
    """
    config = subject.config(batch=4 if subject.plays_episodes else 12, hidden=10)
    fields = {key: getattr(config, key) for key in ("batch_size", "hidden") if hasattr(config, key)}
    if hasattr(config, "epochs"):
        fields["epochs"] = 1
    epochs = subject.settings.get("epochs", min(1, config.data_mode().epochs))
    updates = 2 * epochs or 1  # over a collection of eight episodes
    options: dict[str, Any] = {
        "algorithm.name": subject.name,
        "iterations": updates * -(-3 // updates),
        "environment.copies": 8 if epochs else 2,
        "collect.steps": 10,
        "collect.warmup": 60,
        "collect.warmup_copies": 3,
        **{f"algorithm.{key}": value for key, value in ({**fields, **subject.settings}).items()},
    }
    refusals = list[str]()
    for world in [subject.world] if subject.world else WORLDS:
        try:
            checked = load(options=options | dict(world)).check().config
            LocalRun(checked).training.collector.require_one_team()
        except ConfigError as error:
            refusals.append(f"in {world['environment.name']}: {error}")
        else:
            return checked
    raise ConfigError(f"{subject.name} refuses every environment; {'; '.join(refusals)}")


def declared(subject: Subject) -> Sequence[str]:
    """Return the names of statistics that ``statistics`` or ``entries`` declares."""
    config: Any = subject.config()
    if isinstance(entries := getattr(config, "entries", None), Entries):
        return entries.names
    return config.statistics() if hasattr(config, "statistics") else ()


def coded(reference: RunConfig, problem: Problem, code: str) -> RunConfig | None:
    """Return the same run with a code and late learners; None where the code does not exist."""
    late = PluginSettings(name="fixed_k", params={"k": 1})
    for learners in (len(problem.units) + 2, 15):
        config = replace(
            reference, learners=learners, code=PluginSettings(name=code), stragglers=late
        )
        try:
            code_of(config, units=len(problem.units), target=problem.target)
        except (CodeError, ConfigError):
            continue
        return config
    return None
