"""The built-in algorithms and further variants of them, as subjects of the conformance laws."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from tests.registries import shipped

from fullrank.algorithms import Algorithm, AlgorithmConfig, EnvironmentSpec, algorithms
from fullrank.algorithms.action_values import ActionValues
from fullrank.algorithms.on_policy_learner import OnPolicy
from fullrank.algorithms.pqn import PQN
from fullrank.algorithms.qplex import QPLEX
from fullrank.algorithms.sac import SAC
from fullrank.common.types import FloatArray
from fullrank.conformance.subjects import BATCH, HIDDEN, MIXED, SEED, TEAMS, Subject
from fullrank.environments import AgentSpec, Continuous, Discrete
from fullrank.replay.layout import Layout

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
SCREENS, LOCKS = (
    {"environment.name": f"tests.unit.environments.games:{game}", "environment.agents": 0}
    for game in ("Screens", "Locks")
)
"""Environments of agents that observe images, or make several choices."""
READABLE = "maddpg by autograd"
"""The algorithm as stated by its losses, with another depth than the hand-written kernel."""
MEAN_FIELD = "mfac by autograd"
"""The same of the algorithm whose critics see a mean of actions."""

WITHOUT_MEMORY = "vdn without memory"
"""A team for whose network there is no hand-written kernel."""

NORMALISED = "qmix of normalised layers"
"""A recurrent team for whose network there is no hand-written kernel."""

LAYERED = "ippo of normalised layers"
"""Agents of all kinds with policies of their own, for which there is no hand-written kernel."""

PARTS = "maddpg of three parts"
"""Units are micro-batches of an agent; 100 transitions are not divisible by three."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    READABLE: ("maddpg", {"hidden_layers": 1}),
    MEAN_FIELD: ("mfac", {"hidden_layers": 1}),
    WITHOUT_MEMORY: ("vdn", {"recurrent": False, "standardise_rewards": True}),
    PARTS: ("maddpg", {"micro_batches": 3}),
    "mappo of normalised observations": ("mappo", {"normalise_observations": True, "clock": 9}),
    "ippo of images": ("ippo", {"layer_norm": True}),
    "mappo of images": ("mappo", {"recurrent": True, "micro_batches": 2}),
    "coma of images": ("coma", {"layer_norm": True, "micro_batches": 2}),
    "pqn of images": ("pqn", {}),
    "vdn of images": ("vdn", {}),
    NORMALISED: ("qmix", {"layer_norm": True}),
    "ippo of several choices": ("ippo", {"recurrent": True}),
    "mappo of several choices": ("mappo", {"clock": 9}),
    "maddpg of several choices": ("maddpg", {}),
    "coma with memory": ("coma", {"recurrent": True}),
    LAYERED: ("ippo", {"layer_norm": True, "share": "none", "micro_batches": 2}),
    "ippo with memory": ("ippo", {"recurrent": True}),
    "mappo of networks apart": (
        "mappo",
        {"share": "none", "micro_batches": 2, "reward": "own", "anneal_iterations": 4},
    ),
    "masac of three parts": ("masac", {"micro_batches": 3}),
    "pqn with memory": ("pqn", {"recurrent": True, "mixer": "monotonic", "last_action": True}),
    "pqn of networks apart": ("pqn", {"share": "none", "mixer": "none", "layer_norm": False}),
    "qmix of one unit": ("qmix", {"micro_batches": 1, "optimiser": "adam", "trace": 0.6}),
}
"""Further cases: registered name and parameters."""

SHOWN = (
    *("mappo of images", "coma of images", "coma with memory", LAYERED),
    *("masac of three parts", "pqn of networks apart", "vdn of images"),
)
"""Variants all of whose paths other cases take; their laws are thorough."""

FEW_CODES = ("mds", "fractional")
"""A code of single units, and one of their sum."""


def cases(wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
    """The names of all cases for which ``wanted`` holds."""
    return [name for name in (*shipped(algorithms), *VARIANTS) if wanted(name)]


def parameters() -> list[ParameterSet]:
    """The parameters of a test of all cases."""
    marks = {name: [pytest.mark.thorough] if name in SHOWN else [] for name in cases()}
    return [pytest.param(name, marks=own) for name, own in marks.items()]


def class_of(name: str) -> type:
    """Return the class of a case."""
    return algorithms.get(VARIANTS.get(name, (name, {}))[0])


def by_autograd(name: str) -> bool:
    """Return whether the algorithm's updates are computed by autograd."""
    kinds = (OnPolicy, SAC, PQN, QPLEX)
    others = READABLE, MEAN_FIELD, WITHOUT_MEMORY, NORMALISED, "vdn of images"
    return name in others or issubclass(class_of(name), kinds)


def plays_episodes(name: str) -> bool:
    """Return whether the algorithm learns from whole episodes."""
    return issubclass(class_of(name), (ActionValues, OnPolicy))


def draws(name: str) -> bool:
    """Return whether updates draw actions or noise; ISAC has exact means over discrete actions."""
    return not plays_episodes(name) and name != "isac"


def collects(name: str) -> bool:
    """Return whether learners collect their transitions in an environment of its own sizes."""
    return subject(name).collects


@cache
def subject(name: str) -> Subject:
    """Return the subject of a case."""
    registered, settings = VARIANTS.get(name, (name, {}))
    if name.endswith("of images"):
        return Subject(registered, settings, agents=VIEWERS, world=SCREENS)
    if name.endswith("choices"):
        choosing = TEAMS["of agents with several choices"]
        return Subject(registered, settings, agents=choosing, world=LOCKS)
    if name == LAYERED:
        return Subject(registered, settings, agents=MIXED)
    if name.endswith("of three parts"):  # a third of MIXED has units enough
        return Subject(registered, settings, agents=MIXED[:3])
    sides = {"ddpg_sides": ("lone",)} if hasattr(algorithms.get(registered), "ddpg_sides") else {}
    return Subject(registered, settings, sides)


def team(name: str) -> Sequence[AgentSpec]:
    """Agents that the algorithm can train."""
    return subject(name).team


def narrow_team(*, observation: int, actions: int, values: bool) -> Sequence[AgentSpec]:
    """Two alike agents a side, of these sizes; with values of actions these are discrete."""
    single = actions == 1 and not values
    action = Continuous((-1.0,), (1.0,)) if single else Discrete(actions, relaxed=True)
    return [
        AgentSpec(name=f"agent_{i}", observation_size=observation, action=action, side=side)
        for i, side in enumerate(["team", "team", "lone", "lone"])
    ]


def spec_of(name: str, agents: Sequence[AgentSpec] = ()) -> EnvironmentSpec:
    return subject(name).spec(agents)


def config(name: str, *, batch: int = BATCH, hidden: int = HIDDEN) -> AlgorithmConfig:
    return subject(name).config(batch=batch, hidden=hidden)


def build(
    name: str,
    *,
    batch: int = BATCH,
    hidden: int = HIDDEN,
    seed: int = SEED,
    agents: Sequence[AgentSpec] = (),
    device: str = "cpu",
) -> Algorithm:
    return subject(name).build(batch=batch, hidden=hidden, seed=seed, agents=agents, device=device)


def layout(name: str, agents: Sequence[AgentSpec] = ()) -> Layout:
    return subject(name).layout(agents)


def transitions(
    name: str, size: int, *, seed: int = 0, agents: Sequence[AgentSpec] = ()
) -> FloatArray:
    return subject(name).transitions(size, seed=seed, agents=agents)
