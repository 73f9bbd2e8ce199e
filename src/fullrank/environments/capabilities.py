"""Optional capabilities of environments, and the defaults for environments without them.

An environment declares a capability by having its members; no base class is needed.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import EnvironmentFailed
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Environment


@runtime_checkable
class Stated(Protocol):
    """An environment with a global state, which centralised critics and mixers read."""

    state_size: int
    """S, entries of the state of one copy."""

    def state(self) -> FloatArray:
        """Return the current state of all copies, shape (E, S) float32."""


@runtime_checkable
class Masked(Protocol):
    """An environment that forbids some discrete actions in some situations."""

    def available(self) -> BoolArray:
        """Return the actions permitted now, shape (E, sum of action sizes).

        Every agent always has at least one, in each of its choices. An agent that is not alive has
        exactly one, its no-op; action 0 stands for it where the game has none, since the action of
        such an agent is ignored. An agent whose episode a time limit ended keeps those of its last
        state. Entries of continuous actions are True.
        """


@runtime_checkable
class OwnLimits(Protocol):
    """A ``Masked`` environment in which a time limit may come for an agent alone."""

    def next_available(self) -> BoolArray:
        """Return the actions permitted after the last step, of the shape of ``available``.

        They are those of ``available()``, but an agent whose own time limit came in this step has
        those of its last state, whose value is still needed.
        """


@runtime_checkable
class Contested(Protocol):
    """An environment whose episodes are won or lost."""

    def won(self) -> BoolArray:
        """Return True for copies whose episode ended in the last step with a win, shape (E,)."""


@runtime_checkable
class Shared(Protocol):
    """An environment that may pay all agents the same reward."""

    shared_reward: bool
    """True if all agents always receive the same reward, which returns then count once."""


@runtime_checkable
class Paused(Protocol):
    """An environment in which copies whose episode is over may wait for others."""

    pauses: bool
    """True if a step leaves ended copies as they are, which costs less than playing on in them."""


@runtime_checkable
class Timed(Protocol):
    """An environment whose episodes all have the same number of steps."""

    horizon: int
    """Steps of an episode."""


@runtime_checkable
class Limited(Protocol):
    """An environment whose episodes end after different numbers of steps, within a limit."""

    step_limit: int
    """Most steps of an episode."""


Upload: TypeAlias = Callable[[NDArray[Any]], Any]
"""Makes a tensor on a device, of the values and the type of an array."""


class DeviceEnvironment(Environment, Protocol):
    """Copies on a device, whose episodes all have the same number of steps.

    ``reset`` and ``step`` take and return arrays of the host, as those of any environment.
    """

    observation: Any
    """Current joint observations, tensor of shape (sum of observation sizes, E), float32."""
    reward: Any
    """Rewards of the last step, tensor of shape (M, E), float64."""

    def start(self, seeds: Sequence[int], copies: Sequence[int]) -> None:
        """Start new episodes in the given copies, as ``reset`` does; nothing is copied back."""

    def advance(self, action: Any) -> None:
        """Advance every copy by one step, always by the same operations on the device alone.

        Args:
            action: Joint actions, tensor of shape (sum of action sizes, E), float32.
        """


@runtime_checkable
class Uploadable(Timed, Protocol):
    """An environment that can be played on a device."""

    def on(self, upload: Upload) -> DeviceEnvironment:
        """Make as many copies on a device.

        Args:
            upload: Copies an array to the device.
        """


@runtime_checkable
class Watched(Protocol):
    """An environment that calls foreign code, which may hang."""

    def doing(self) -> str:
        """Name the copy whose code runs now, its step and its seed; else return an empty text.

        Any thread may ask.
        """


def doing(environments: Iterable[Environment]) -> str:
    """Say what the first of these environments does that calls foreign code now, as it says it."""
    said = (each.doing() for each in environments if isinstance(each, Watched))
    return next(filter(None, said), "")


def state_size(environment: Environment) -> int:
    """Return S: the environment's own, or by default the size of the joint observation."""
    if isinstance(environment, Stated):
        return environment.state_size
    return sum(agent.observation_size for agent in environment.agents)


def pauses(environment: Environment) -> bool:
    """Return whether copies whose episode is over may wait for others; by default False."""
    return isinstance(environment, Paused) and environment.pauses


def horizon_of(environment: Environment) -> int:
    """Return the number of steps of every episode; 0 if their lengths differ or are unknown."""
    return environment.horizon if isinstance(environment, Timed) else 0


def step_limit_of(environment: Environment) -> int:
    """Return the most steps of an episode; 0 if that is unknown."""
    return environment.step_limit if isinstance(environment, Limited) else horizon_of(environment)


def own_state_size(environment: Environment) -> int:
    """Return S of an environment with a global state, else 0."""
    return environment.state_size if isinstance(environment, Stated) else 0


def state_of(environment: Environment, observation: FloatArray) -> FloatArray:
    """Return the current state, shape (E, S); by default the current joint observation."""
    return environment.state() if isinstance(environment, Stated) else observation


def available_of(environment: Environment) -> BoolArray:
    """Return the available actions, shape (E, sum of action sizes); by default all."""
    if isinstance(environment, Masked):
        return environment.available()
    size = sum(agent.action.size for agent in environment.agents)
    return np.ones((environment.copies, size), dtype=bool)


def next_available_of(environment: Environment) -> BoolArray:
    """Return the available actions after a step, also of agents whose own time limit came."""
    if isinstance(environment, OwnLimits):
        return environment.next_available()
    return available_of(environment)


def offers_masks(environment: Environment) -> bool:
    """Return whether some actions may be unavailable to a living agent.

    Adapters are ``Masked`` whether or not the environments that they adapt are, and their attribute
    ``masked`` tells.
    """
    return isinstance(environment, Masked) and getattr(environment, "masked", True)


def shares_reward(environment: Environment) -> bool:
    """Return whether all agents receive one shared reward; by default False."""
    return bool(getattr(environment, "shared_reward", False))


def chosen_actions(
    agents: Sequence[AgentSpec], action: FloatArray, *, available: BoolArray, alive: BoolArray
) -> IntArray:
    """Return the index of each agent's action, shape (E, M); that of its first choice of several.

    It is meaningless for ``Continuous`` agents.

    Args:
        agents: The environment's agents.
        action: Joint actions, one-hot where discrete, shape (E, sum of action sizes).
        available: Permitted actions, of the same shape.
        alive: Agents whose action counts, shape (E, M).

    Raises:
        EnvironmentFailed: A living agent chose an action that is not available.
    """
    parts, owner = _parts(_sizes(agents))
    starts = np.array([part.start for part in parts])
    if len(sizes := {part.stop - part.start for part in parts}) == 1:
        chosen = action.reshape(len(action), len(parts), *sizes).argmax(axis=2)
    else:
        chosen = np.stack([action[:, part].argmax(axis=1) for part in parts], axis=1)
    refused = alive[:, list(owner)] & ~np.take_along_axis(available, starts + chosen, axis=1)
    if refused.any():
        copy, place = np.argwhere(refused)[0].tolist()
        raise EnvironmentFailed(
            f"{agents[owner[place]].name} of copy {copy} chose action {chosen[copy, place]}, which "
            "is not available; choose among the actions that available() permits"
        )
    first_choices: IntArray = chosen[:, np.searchsorted(owner, np.arange(len(agents)))]
    return first_choices


def permitted_actions(
    agents: Sequence[AgentSpec], action: FloatArray, available: BoolArray
) -> FloatArray:
    """Replace every discrete action that is not available by the agent's first available one.

    Args:
        agents: The environment's agents.
        action: Joint actions, one-hot where discrete, shape (E, sum of action sizes).
        available: Permitted actions, of the same shape.
    """
    permitted = action.copy()
    for part, agent in zip(*_parts(_sizes(agents)), strict=True):
        if agents[agent].action.choices:
            mask = available[:, part]
            chosen = action[:, part].argmax(axis=1)
            refused = ~np.take_along_axis(mask, chosen[:, None], axis=1)[:, 0]
            first = mask[refused].argmax(axis=1)
            permitted[refused, part] = np.eye(mask.shape[1], dtype=np.float32)[first]
    return permitted


def _sizes(agents: Sequence[AgentSpec]) -> tuple[tuple[int, ...], ...]:
    """Return the entries of each agent's choices, or of its range."""
    return tuple(tuple(agent.action.choices) or (agent.action.size,) for agent in agents)


@cache
def _parts(sizes: tuple[tuple[int, ...], ...]) -> tuple[tuple[slice, ...], tuple[int, ...]]:
    """Return the parts of a joint action, one for each choice or range, and each one's agent."""
    stops = np.cumsum([size for own in sizes for size in own]).tolist()
    parts = tuple(slice(start, stop) for start, stop in zip([0, *stops], stops, strict=False))
    return parts, tuple(agent for agent, own in enumerate(sizes) for _ in own)
