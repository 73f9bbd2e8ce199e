"""Base of the lattice tasks: each agent holds z bits and observes its own and its neighbours'."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fullrank.common.seeding import stream
from fullrank.common.types import Array, BoolArray, FloatArray, IntArray
from fullrank.environments.base import AgentSpec, Step
from fullrank.environments.lattice.grid import ABSENT
from fullrank.environments.time_limit import TimeLimit

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
