"""Square lattices of agents, their neighbourhoods in index order, and the base of tasks on them.

Each agent holds z bits and observes its own and its neighbours'.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import ConfigError
from fullrank.common.seeding import stream
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Step, TimeLimit

ABSENT = -1
"""Filler for missing neighbours."""


def side_of(agents: int, *, task: str, least: int) -> int:
    """The side of the lattice of M agents, numbered row by row.

    Args:
        agents: M.
        task: For the message.
        least: Shortest side with the task's neighbourhoods.

    Raises:
        ConfigError: M is not the square of at least ``least``.
    """
    side = math.isqrt(max(agents, 0))
    if side * side != agents or side < least:
        examples = ", ".join(str(n * n) for n in range(max(least, 2), max(least, 2) + 3))
        raise ConfigError(
            f"{task}: the agents form a square lattice of side {least} or more, so M must be "
            f"a square ({examples}, ...): {agents}"
        )
    return side


def torus(side: int) -> IntArray:
    """Each agent, then its four neighbours on the torus in ascending order, shape (M, 5)."""
    cell = np.arange(side * side).reshape(side, side)
    around = [np.roll(cell, shift, axis) for axis in (0, 1) for shift in (1, -1)]
    return _with_self(np.sort(np.stack(around, axis=-1).reshape(-1, 4), axis=1))


def king(side: int) -> IntArray:
    """Each agent, then its up to eight neighbours in ascending order, shape (M, 9)."""
    cell = np.pad(np.arange(side * side).reshape(side, side), 1, constant_values=ABSENT)
    steps = [(row, column) for row in range(3) for column in range(3) if (row, column) != (1, 1)]
    around = [cell[row : row + side, column : column + side] for row, column in steps]
    ascending = np.stack(around, axis=-1).reshape(-1, 8)
    order = np.argsort(ascending == ABSENT, axis=1, kind="stable")
    return _with_self(np.take_along_axis(ascending, order, axis=1))


def _with_self(neighbours: IntArray) -> IntArray:
    return np.concatenate([np.arange(len(neighbours))[:, None], neighbours], axis=1)


def within(hood: IntArray, hops: int) -> IntArray:
    """Agents within so many steps, the agent included, in ascending order.

    Args:
        hood: Each agent and its neighbours, shape (M, n).
        hops: Steps, at least 0.

    Returns:
        Shape (M, widest), filled with ``ABSENT`` at the end.
    """
    reached: list[IntArray] = [row[:1] for row in hood]
    for _ in range(hops):
        reached = [np.setdiff1d(hood[row], ABSENT) for row in reached]
    return padded(reached)


def padded(rows: Sequence[IntArray]) -> IntArray:
    """Rows of unequal length as one array, filled with ``ABSENT``."""
    table = np.full((len(rows), max(map(len, rows))), ABSENT)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    return table


T = TypeVar("T", bound=np.generic)


class LatticeEnvironment(ABC):
    """An ``Environment`` of M agents with z bits each; tasks define transitions and rewards.

    Args:
        agents: M of them.
        hood: Each agent and its neighbours, own index first, shape (M, n).
        bits: z.
        copies: E.
        horizon: Steps of an episode.

    Attributes:
        state: Bits of the agents, shape (E, M, z).
    """

    def __init__(
        self, agents: Sequence[AgentSpec], hood: IntArray, *, bits: int, copies: int, horizon: int
    ) -> None:
        self.agents, self.copies = tuple(agents), copies
        self.hood = hood
        self.state: BoolArray = np.zeros((copies, len(hood), bits), dtype=bool)
        self.horizon = horizon
        self._limit = TimeLimit(agents=len(hood), copies=copies, horizon=horizon)

    @abstractmethod
    def begin(self, copy: int, seed: int) -> None:
        """Prepare the draws of one copy's episode, after those of its state."""

    @abstractmethod
    def advance(self, action: FloatArray) -> Array:
        """Change the state, given actions of shape (E, M, n); returns rewards, shape (E, M)."""

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        """See ``Environment.reset``; every bit is a fair coin."""
        for copy, seed in zip(copies, seeds, strict=True):
            self.state[copy] = stream(seed, "lattice").random(self.state.shape[1:]) < 0.5
            self.begin(copy, seed)
        self._limit.begin(copies)
        return self.observation()

    def step(self, action: FloatArray) -> Step:
        """Step all copies; see ``Environment.step``."""
        reward = self.advance(action.reshape(self.copies, len(self.agents), -1))
        return self._limit.step(observation=self.observation(), reward=reward)

    def observation(self) -> FloatArray:
        """The joint observation of the present state, shape (E, sum of observation sizes)."""
        return observe(self.state, self.hood).reshape(self.copies, -1)

    def close(self) -> None:  # noqa: B027
        """Do nothing: no resource is held."""


def observe(state: BoolArray, hood: IntArray) -> FloatArray:
    """Own bits, then those of the neighbours; zeros in the place of absent ones.

    Args:
        state: Shape (E, M, z).
        hood: Shape (M, n) or (E, M, n).

    Returns:
        Shape (E, M, n z).
    """
    return seen(state, hood, absent=False).reshape(*state.shape[:2], -1).astype(np.float32)


def seen(values: NDArray[T], hood: IntArray, *, absent: object) -> NDArray[T]:
    """Values at each agent and its neighbours.

    Args:
        values: Per agent, shape (E, M, ...).
        hood: Indices or ``ABSENT``, shape (M, n) or (E, M, n).
        absent: The value where there is no neighbour.

    Returns:
        Shape (E, M, n, ...).
    """
    filler = np.full_like(values[:, :1], absent)
    assert ABSENT == -1  # the filler precedes the first agent
    everything = np.concatenate([filler, values], axis=1)
    copies, places, *rest = everything.shape
    first = np.arange(1, copies * places, places)[:, None, None]
    return everything.reshape(copies * places, *rest).take(first + hood, axis=0)
