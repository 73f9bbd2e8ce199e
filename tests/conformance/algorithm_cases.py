"""Algorithms, teams and transitions for the conformance tests of algorithms."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from tests.registries import shipped

from fullrank.algorithms import (
    Algorithm,
    AlgorithmConfig,
    EnvironmentSpec,
    algorithms,
    environment_spec,
)
from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.base import layout_of
from fullrank.algorithms.on_policy_learner import OnPolicy
from fullrank.algorithms.pqn import PQN
from fullrank.algorithms.qplex import QPLEX
from fullrank.algorithms.sac import SAC
from fullrank.codes.targets import target_sizes
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import GRID
from fullrank.environments import AgentSpec, Continuous, Discrete, make_environment
from fullrank.replay import Layout
from fullrank.replay.episodes import NO_ACTION


def scout(name: str, side: str) -> AgentSpec:
    return AgentSpec(
        name=name,
        observation_size=7,
        action=Discrete(5, relaxed=True),
        side=side,
        always_zero=(2, 5, 6),
    )


UNEQUAL = (  # of two sides, so that both kinds of critics are computed
    scout("scout", "team"),
    AgentSpec(
        name="gripper",
        observation_size=13,
        action=Continuous((-1.0, 0.0), (1.0, 3.0)),
        always_zero=(0,),
    ),
    scout("scout_2", "lone"),
    AgentSpec(name="guard", observation_size=7, action=Discrete(3), side="lone"),
    scout("scout_3", "team"),
    scout("scout_4", "lone"),
)
VIEWERS = tuple(
    AgentSpec(
        name=f"viewer_{number}",
        observation_size=7 * 5 * 4,
        action=Discrete(actions),
        image=(7, 5, 4),
    )
    for number, actions in enumerate((5, 3))
)
"""Agents that observe images."""
WORLD = "food_collection"
SEED = 11


READABLE = "maddpg by autograd"
"""The algorithm as stated by its losses, with another depth than the hand-written kernel."""

WITHOUT_MEMORY = "vdn without memory"
"""A team for whose network there is no hand-written kernel."""

PARTS = "maddpg of three parts"
"""Units are micro-batches of an agent; 100 transitions are not divisible by three."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    READABLE: ("maddpg", {"hidden_layers": 1}),
    WITHOUT_MEMORY: ("vdn", {"recurrent": False}),
    PARTS: ("maddpg", {"micro_batches": 3}),
    "ippo of images": ("ippo", {"layer_norm": True}),
    "mappo of images": ("mappo", {"recurrent": True, "micro_batches": 2}),
    "pqn of images": ("pqn", {}),
    "coma with memory": ("coma", {"recurrent": True}),
    "ippo with memory": ("ippo", {"recurrent": True}),
    "mappo of networks apart": ("mappo", {"share": "none", "micro_batches": 2, "reward": "own"}),
    "masac of three parts": ("masac", {"micro_batches": 3}),
    "pqn with memory": ("pqn", {"recurrent": True, "mixer": "monotonic", "last_action": True}),
    "pqn of networks apart": ("pqn", {"share": "none", "mixer": "none", "layer_norm": False}),
    "qmix of one unit": ("qmix", {"micro_batches": 1, "optimiser": "adam", "trace": 0.6}),
}
"""Further cases: registered name and parameters."""

MOST_EPISODES = 23
"""Upper bound on the episodes of a minibatch, whose steps are computed one after the other."""


def cases(wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
    """The names of all cases for which ``wanted`` holds."""
    return [name for name in (*shipped(algorithms), *VARIANTS) if wanted(name)]


def class_of(name: str) -> type:
    """Return the class of a case."""
    return algorithms.get(VARIANTS.get(name, (name, {}))[0])


def by_autograd(name: str) -> bool:
    """Return whether the algorithm's updates are computed by autograd."""
    kinds = (OnPolicy, SAC, PQN, QPLEX)
    return name in (READABLE, WITHOUT_MEMORY) or issubclass(class_of(name), kinds)


def plays_episodes(name: str) -> bool:
    """Return whether the algorithm learns from whole episodes."""
    return issubclass(class_of(name), (ActionValues, OnPolicy))


def draws(name: str) -> bool:
    """Return whether updates draw actions or noise; ISAC has exact means over discrete actions."""
    return not plays_episodes(name) and name != "isac"


def collects(name: str) -> bool:
    """Return whether learners collect their transitions in an environment of its own sizes."""
    return config(name).data_mode().kind != "shared"


def team(name: str) -> Sequence[AgentSpec]:
    """Agents that the algorithm can train; those of ``WORLD`` if learners collect."""
    if name.endswith("of images"):
        return VIEWERS
    values = issubclass(class_of(name), ActionValues)
    if values or (plays_episodes(name) and getattr(config(name), "share", "all") == "all"):
        return tuple(spec for spec in UNEQUAL if isinstance(spec.action, Discrete))
    if not collects(name):
        return UNEQUAL
    return make_environment(WORLD, agents=4, copies=1).agents


def narrow_team(*, observation: int, actions: int, values: bool) -> Sequence[AgentSpec]:
    """Two alike agents a side, of these sizes; with values of actions these are discrete."""
    single = actions == 1 and not values
    action = Continuous((-1.0,), (1.0,)) if single else Discrete(actions, relaxed=True)
    return [
        AgentSpec(name=f"agent_{i}", observation_size=observation, action=action, side=side)
        for i, side in enumerate(["team", "team", "lone", "lone"])
    ]


def spec_of(name: str, agents: Sequence[AgentSpec] = ()) -> EnvironmentSpec:
    return environment_spec(agents or team(name), environment=WORLD, count=4, params={})


def config(name: str, *, batch: int = 100, hidden: int = 33) -> AlgorithmConfig:
    registered, params = VARIANTS.get(name, (name, {}))
    if plays_episodes(name):
        batch = min(batch, MOST_EPISODES)
    wanted = {"batch_size": batch, "hidden": hidden, "ddpg_sides": ("lone",), **params}
    known = {field.name for field in fields(algorithms.get(registered))}  # type: ignore[arg-type]
    params = {key: value for key, value in wanted.items() if key in known}
    return algorithms.build(registered, **params)


def build(
    name: str,
    *,
    batch: int = 100,
    hidden: int = 33,
    seed: int = SEED,
    agents: Sequence[AgentSpec] = (),
    device: str = "cpu",
) -> Algorithm:
    spec = spec_of(name, agents)
    return config(name, batch=batch, hidden=hidden).make(spec, seed=seed, device=device)


def units_of(algorithm: Algorithm) -> range:
    return range(len(algorithm.problem.units))


def layout(name: str, agents: Sequence[AgentSpec] = ()) -> Layout:
    return layout_of(agents or team(name))


def transitions(
    name: str, size: int, *, seed: int = 0, agents: Sequence[AgentSpec] = ()
) -> FloatArray:
    """Random rows in which agents die or are dead; none if learners collect."""
    generator, where = np.random.default_rng(seed), layout(name, agents)
    if (episodes := config(name).problem(spec_of(name, agents)).episodes) is not None:
        rows = episodes.synthetic(generator, min(size, MOST_EPISODES))
        rows[:, episodes.available] = generator.random((len(rows), sum(where.action_sizes))) < 0.7
        rows[1::3, episodes.action.start] = NO_ACTION
        return rows
    if not config(name).data_mode().batch_size:
        return np.empty((0, where.row_size), np.float32)
    rows = generator.standard_normal((size, where.row_size), dtype=np.float32)
    rows[:, where.terminated] = generator.random((size, where.agents)) < 0.2
    rows[:, where.alive] = generator.random((size, where.agents)) < 0.8
    return rows


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
    return {
        unit: update.tobytes()
        for unit, update in algorithm.gradients.compute(batch, units, iteration=iteration)
    }
