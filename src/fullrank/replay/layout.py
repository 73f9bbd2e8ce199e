"""The packed row of one joint transition: one contiguous run of float32.

``[observation | action | reward | next_observation | terminated | alive]``, where the joint parts
lie agent by agent. ``alive`` tells which agents acted in this transition; ``terminated`` and
``alive`` are 0 or 1. Where the environment offers masks, ``[available | next_available]`` follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fullrank.common.types import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Columns of each part of a transition in its row."""

    observation_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    masked: bool = False
    """True if rows hold the masks of available actions."""

    @property
    def agents(self) -> int:
        """Number of agents, M."""
        return len(self.observation_sizes)

    @property
    def _widths(self) -> tuple[int, ...]:
        observations, actions = sum(self.observation_sizes), sum(self.action_sizes)
        own = (observations, actions, self.agents, observations, self.agents, self.agents)
        return (*own, actions, actions) if self.masked else own

    @property
    def row_size(self) -> int:
        """Number of float32 entries of a row."""
        return sum(self._widths)

    def _part(self, index: int) -> slice:
        start = sum(self._widths[:index])
        return slice(start, start + self._widths[index])

    @property
    def observation(self) -> slice:
        """Joint observation before the step."""
        return self._part(0)

    @property
    def action(self) -> slice:
        """Joint action."""
        return self._part(1)

    @property
    def reward(self) -> slice:
        """Reward of each agent."""
        return self._part(2)

    @property
    def next_observation(self) -> slice:
        """Joint observation after the step."""
        return self._part(3)

    @property
    def terminated(self) -> slice:
        """1 where the agent reached a terminal state."""
        return self._part(4)

    @property
    def alive(self) -> slice:
        """1 where the agent acted."""
        return self._part(5)

    @property
    def available(self) -> slice:
        """1 where an action was available before the step; ``masked`` rows only."""
        return self._part(6)

    @property
    def next_available(self) -> slice:
        """1 where an action is available after the step; ``masked`` rows only."""
        return self._part(7)

    def observation_of(self, agent: int) -> slice:
        """Columns of an agent within a joint observation."""
        return _own(self.observation_sizes, agent)

    def action_of(self, agent: int) -> slice:
        """Columns of an agent within a joint action."""
        return _own(self.action_sizes, agent)

    def pack(
        self,
        *,
        observation: FloatArray,
        action: FloatArray,
        reward: NDArray[np.float64],
        next_observation: FloatArray,
        terminated: BoolArray,
        alive: BoolArray,
        available: BoolArray | None = None,
        next_available: BoolArray | None = None,
        out: FloatArray,
    ) -> None:
        """Write E transitions into ``out``, shape (E, row_size); ``masked`` ones need the masks."""
        out[:, self.observation] = observation
        out[:, self.action] = action
        out[:, self.reward] = reward
        out[:, self.next_observation] = next_observation
        out[:, self.terminated] = terminated
        out[:, self.alive] = alive
        if self.masked:
            out[:, self.available], out[:, self.next_available] = available, next_available


def _own(sizes: Sequence[int], agent: int) -> slice:
    start = sum(sizes[:agent])
    return slice(start, start + sizes[agent])
