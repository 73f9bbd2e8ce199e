"""What worlds in the plane share: drawable states, observations of a kind of agents, and sides."""

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_uppercase
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from fullrank.common.errors import ConfigError
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Discrete, Environment


class Scene(NamedTuple):
    """The entities of one copy, n of them."""

    kinds: tuple[str, ...]
    """Kind of each entity, for example ``agent``, ``adversary``, ``landmark``, ``food``."""
    size: Array
    """Radii, shape (n,)."""
    position: Array
    """Shape (n, 2)."""
    links: tuple[tuple[int, int], ...] = ()
    """Linked pairs of entities."""
    labels: Mapping[int, str] = {}
    """Messages by entity."""
    shots: tuple[tuple[int, int], ...] = ()
    """Entities that act on others, and those others."""
    bars: Mapping[int, tuple[float, ...]] = {}
    """Shares that an entity has left, of health and perhaps of shield."""
    key: Mapping[str, str] = {}
    """Meanings of kinds and labels."""
    zones: Mapping[int, float] = {}
    """Radius of the rewarded zone around an entity."""
    half_width: float = 1.0
    """Half the side of the square of starting positions."""

    def with_goal(self, entity: int) -> "Scene":
        """The scene with one landmark as the goal."""
        kinds = (*self.kinds[:entity], "goal", *self.kinds[entity + 1 :])
        return self._replace(kinds=kinds)


@runtime_checkable
class Drawable(Environment, Protocol):
    """An environment in the plane."""

    def scene(self, copy: int) -> Scene:
        """The drawable state of one copy."""


def said(entities: Sequence[int], messages: Array) -> dict[int, str]:
    """The largest symbol of each speaker that is not silent, by entity.

    Args:
        entities: The k speakers.
        messages: Shape (k, symbols).
    """
    return {
        entity: ascii_uppercase[int(message.argmax())]
        for entity, message in zip(entities, messages, strict=True)
        if message.any()
    }


def write(out: FloatArray, *parts: Array | BoolArray) -> None:
    """Write the observations of g agents, part by part.

    Args:
        out: Shape (g * observation size, E).
        *parts: Vectors of shape (2, g, k, E), whose coordinates are written side by side, or plain
            features of shape (g, k, E); g may be 1 for parts that all agents share. Arrays of the
            library of ``out``.
    """
    copies = out.shape[1]
    widths = [part.shape[-2] * (2 if part.ndim == 4 else 1) for part in parts]
    block = out.reshape(-1, sum(widths), copies)
    start = 0
    for part, width in zip(parts, widths, strict=True):
        place = block[:, start : start + width]
        if part.ndim == 4:
            pairs = place.reshape(len(block), width // 2, 2, copies)
            place = pairs.swapaxes(0, 2).swapaxes(1, 2)
        place[...] = part
        start += width


def others(agents: int) -> tuple[IntArray, IntArray]:
    """Index of all entries of axes (agent, agent) but the diagonal, rows ascending."""
    indices = np.tile(np.arange(agents), (agents, 1))
    rest = indices[~np.eye(agents, dtype=bool)].reshape(agents, agents - 1)
    return np.arange(agents)[:, None], rest


def one_hot(index: IntArray, values: IntArray) -> BoolArray:
    """One-hot vectors, shape (k, n, E), of integers, shape (k, E), among n values, shape (n,)."""
    result: BoolArray = index[:, None] == values[:, None]
    return result


MOVES = Discrete(5, relaxed=True)
"""Movement: none, +x, -x, +y, -y."""


def group(
    name: str,
    number: int,
    *,
    observation: int,
    always_zero: Iterable[int] = (),
    action: Discrete = MOVES,
    side: str | None = None,
) -> list[AgentSpec]:
    """Agents ``name_0``, ``name_1``, ...

    Args:
        name: Prefix of their names.
        number: Number of agents.
        observation: Number of entries of an observation.
        always_zero: Entries of an observation that are always zero, ascending.
        action: Action of each agent.
        side: Side of the agents; None: ``name``.
    """
    zeros = tuple(always_zero)
    return [
        AgentSpec(
            name=f"{name}_{i}",
            observation_size=observation,
            action=action,
            side=side or name,
            always_zero=zeros,
        )
        for i in range(number)
    ]


def opponents(task: str, *, agents: int, adversaries: int) -> tuple[int, int]:
    """M - K and K.

    Args:
        task: For the message.
        agents: M; 0 means 8.
        adversaries: K; 0 means half of M.

    Raises:
        ConfigError: A side would be empty.
    """
    total = agents or 8
    opposed = adversaries or total // 2
    if not 1 <= opposed < total:
        raise ConfigError(
            f"{task}: M agents, K of them adversaries, need 1 <= K < M; M = {total}, K = {opposed}"
        )
    return total - opposed, opposed


def require_landmarks(task: str, landmarks: int, *, least: int) -> None:
    """Raise ``ConfigError`` unless L is at least ``least``."""
    if landmarks < least:
        raise ConfigError(f"{task}: L landmarks, at least {least}, are needed; L = {landmarks}")
