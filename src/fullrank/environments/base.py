"""The interface of environments: E copies x M agents, packed joint arrays.

The observations of all agents of a copy lie side by side in one row, agent 0 first, so that the
joint observation of a centralised critic is the array itself and nothing is ever concatenated.
Actions are packed in the same way.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.foreign import brief, shown
from fullrank.common.registry import Registry
from fullrank.common.types import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Discrete:
    """One of ``n`` actions, written as a vector of length n.

    With ``relaxed`` the environment accepts any point of the simplex, as the particle worlds do;
    otherwise it gets one-hot vectors only.
    """

    n: int
    relaxed: bool = False

    kind: ClassVar[str] = "discrete actions"

    @property
    def size(self) -> int:
        """Entries of the action vector."""
        return self.n

    @property
    def choices(self) -> tuple[int, ...]:
        """Sizes of the one-hot parts of the action vector."""
        return (self.n,)


@dataclass(frozen=True, slots=True)
class MultiDiscrete:
    """Several choices at once: in each, one of so many actions, written as vectors side by side."""

    choices: tuple[int, ...]
    """Number of actions in each choice; at least one choice, each of at least one action."""

    kind: ClassVar[str] = "several actions at once"

    @property
    def size(self) -> int:
        """Entries of the action vector."""
        return sum(self.choices)


@dataclass(frozen=True, slots=True)
class Continuous:
    """A box: ``low`` and ``high`` bound each entry, both finite."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    kind: ClassVar[str] = "continuous actions"

    @property
    def size(self) -> int:
        """Entries of the action vector."""
        return len(self.low)

    @property
    def choices(self) -> tuple[int, ...]:
        """No part of the action vector is one-hot."""
        return ()


ActionSpec: TypeAlias = Discrete | MultiDiscrete | Continuous


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent's interface: name, observation length, actions, and the side it plays for."""

    name: str
    observation_size: int
    action: ActionSpec
    side: str = "team"
    always_zero: tuple[int, ...] = ()
    """Entries of the observation that are zero in every state, ascending. Transitions leave them
    out and products skip them; at least one entry must remain."""
    image: tuple[int, int, int] | None = None
    """Height, width and channels of an observation that is an image, row by row, each entry a
    whole number from 0 to 255; None for any other observation."""

    def __post_init__(self) -> None:
        if self.image is not None and prod(self.image) != self.observation_size:
            raise ConfigError(
                f"{brief(self.name)}: an image of {shown(self.image)} does not have "
                f"{self.observation_size} entries"
            )
        if not self.always_zero:
            return
        if len(self.live) != self.observation_size - len(self.always_zero) or not self.live:
            raise ConfigError(
                f"{brief(self.name)}: always_zero must hold distinct entries of the observation, "
                f"from 0 to {self.observation_size - 1}, and not all of them: "
                f"{shown(self.always_zero)}"
            )

    @property
    def live(self) -> tuple[int, ...]:
        """Entries of the observation that are not always zero, ascending."""
        zero = set(self.always_zero)
        return tuple(entry for entry in range(self.observation_size) if entry not in zero)


class Step(NamedTuple):
    """Result of one step of all copies; it resets none of them.

    An agent that was not alive before the step has zero observations and, unless all agents share
    the reward, zero reward; one that terminated in it has zero observations. One that left without
    terminating (truncation) repeats its last observation, whose value is still needed.
    """

    observation: FloatArray
    """After the step, shape (E, sum of observation sizes) float32."""
    reward: NDArray[np.float64]
    """Shape (E, M)."""
    terminated: BoolArray
    """True for agents that reached a terminal state, not a time limit, in this step, (E, M)."""
    alive: BoolArray
    """True for agents that act after this step, shape (E, M); one that did not act may come back.

    Undefined in copies that ended.
    """
    ended: BoolArray
    """True for copies whose episode ended or was truncated; they need ``reset``, shape (E,)."""


class Environment(Protocol):
    """E copies of one multi-agent environment, stepped together."""

    agents: tuple[AgentSpec, ...]
    copies: int

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """Start new episodes in the given copies; leave the others unchanged.

        Args:
            seeds: One seed per copy reset; equal seeds give equal episodes.
            copies: Indices of the copies to reset.

        Returns:
            Observations of **all** copies, shape (E, sum of observation sizes) float32. Every agent
            is alive in a copy just reset.
        """

    def step(self, action: FloatArray) -> Step:
        """Advance every copy by one step.

        Args:
            action: Packed joint action, shape (E, sum of action sizes) float32. Entries of agents
                that are not alive are ignored.
        """

    def close(self) -> None:
        """Release all resources."""


class EnvironmentConfig(Protocol):
    """A registered environment: a frozen dataclass whose fields are its configuration."""

    @abstractmethod
    def make(self, *, agents: int, copies: int) -> Environment:
        """Build E = ``copies`` copies of M = ``agents`` agents.

        Raises:
            ConfigError: If ``agents`` >= 0 is impossible for this environment (0 means: its own
                number).
        """


ADAPTERS = ("pettingzoo", "gymnasium")
"""Registered environments that adapt those of other packages."""

GYMNASIUM_ID = re.compile(r"-v\d+$")
"""End of the id of a gymnasium environment, which no module and no factory has."""


def _looks_like(name: str) -> str:
    """Say what an unknown name seems to be; the module of a factory is not imported."""
    top = name.partition(".")[0]
    if GYMNASIUM_ID.search(name):
        return f"; an id of gymnasium's runs by --env gymnasium --set environment.id={name}"
    if ":" in name or not top.isidentifier() or not (Path(f"{top}.py").exists() or find_spec(top)):
        return ""
    return f"; it is a module: add the factory in it, for example {name}:parallel_env"


environments: Registry[EnvironmentConfig] = Registry(
    "environment", "fullrank.environments", interface=EnvironmentConfig, hint=_looks_like
)
register = environments.register


def is_adapted(name: str) -> bool:
    """Return whether copies of an environment are separate objects, stepped one by one."""
    return ":" in str(name) or name in ADAPTERS


def variant_of(name: str, params: Mapping[str, Any]) -> str:
    """Source of an environment's dynamics and rewards, which differ between packages.

    Args:
        name: Registered name, or ``package.module:factory``.
        params: Its parameters.

    Returns:
        The package of a factory or of a gymnasium id, for example ``mpe2``; else the registered
        class's ``variant``, for example ``openai``; else that class's own package.
    """
    origin = str(name if ":" in name else params.get("factory") or params.get("id") or "")
    if ":" in origin:
        return origin.partition(":")[0].partition(".")[0]
    registered = environments.get(name)
    defaults = {field.name: field.default for field in fields(registered)}  # type: ignore[arg-type]
    return str(defaults.get("variant", registered.__module__.partition(".")[0]))


def make_environment(name: str, *, agents: int = 0, copies: int, **params: Any) -> Environment:
    """Build a registered environment, or ``package.module:factory`` through the PettingZoo adapter.

    Raises:
        ConfigError: Unknown name or parameter, or an impossible number of agents.
        EnvironmentFailed: The factory cannot be imported or raised.
    """
    if ":" in name:
        params, name = {"factory": name, "arguments": params}, "pettingzoo"
    if agents < 0:
        raise ConfigError(f"environment.agents must not be negative: {agents}")
    return environments.build(name, **params).make(agents=agents, copies=copies)


class TimeLimit:
    """Counts the steps of E copies of M agents, which all act until their episode ends.

    Args:
        agents: M.
        copies: E.
        horizon: Steps of an episode.
    """

    def __init__(self, *, agents: int, copies: int, horizon: int) -> None:
        self._horizon = horizon
        self._steps = np.zeros(copies, dtype=np.int64)
        self._none = np.zeros((copies, agents), dtype=bool)
        self._all = ~self._none
        self._none.flags.writeable = self._all.flags.writeable = False

    def begin(self, copies: Sequence[int]) -> None:
        """Start episodes in these copies."""
        self._steps[list(copies)] = 0

    def step(self, *, observation: FloatArray, reward: NDArray[np.float64]) -> Step:
        """Count a step of every copy; returns its ``Step``."""
        self._steps += 1
        return Step(
            observation=observation,
            reward=reward,
            terminated=self._none,
            alive=self._all,
            ended=self._steps >= self._horizon,
        )


MOST_STEPS = 2**62
"""Most steps of an episode, which 64 bits count."""


def require_horizon(horizon: int) -> None:
    """Raise ``ConfigError`` unless an episode has a step, and a number of steps."""
    if not 1 <= horizon <= MOST_STEPS:
        raise ConfigError(f"environment.horizon must be from 1 to {MOST_STEPS}: {horizon}")
