"""The packed row of one joint transition: one contiguous run of float32.

``[observation | action | reward | next_observation | terminated | alive]``, where the joint parts
lie agent by agent. Observations are without the entries that are always zero. ``alive`` tells which
agents acted in this transition; ``terminated`` and ``alive`` are 0 or 1. An agent that did not act
and acts from the next step on, as it has come back, has ``terminated`` = 1: the two columns differ
where an agent acts next. Where the environment offers masks, ``[available | next_available]``
follow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import EnvironmentFailed
from fullrank.common.types import BoolArray, FloatArray, IntArray


def consecutive(sizes: Sequence[int]) -> list[slice]:
    """Slices of parts that lie one after the other.

    >>> consecutive([2, 0, 3])
    [slice(0, 2, None), slice(2, 2, None), slice(2, 5, None)]
    """
    return [slice(*part) for part in pairwise(accumulate(sizes, initial=0))]


def named_place(entry: int, parts: Mapping[str, tuple[slice, Sequence[int]]]) -> str:
    """Name the part and the agent of an entry.

    Args:
        entry: Column of a row.
        parts: Columns of each part, and the number of those of each agent; none where agents share
            the part.
    """
    for name, (columns, sizes) in parts.items():
        if columns.start <= entry < columns.stop:
            ends = np.cumsum(sizes)
            agent = int(np.searchsorted(ends, entry - columns.start, side="right"))
            return f"{name} of agent {agent}" if len(sizes) else name
    return f"entry {entry}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Columns of each part of a transition in its row."""

    observation_sizes: tuple[int, ...]
    """Entries of each agent's whole observation."""
    action_sizes: tuple[int, ...]
    masked: bool = False
    """True if rows hold the masks of available actions."""
    always_zero: tuple[tuple[int, ...], ...] = ()
    """Entries of each agent's observation that are always zero; empty: no agent has any."""
    live: IntArray = field(init=False, compare=False, repr=False)
    """Entries of a whole joint observation that rows hold, ascending."""
    observation: slice = field(init=False, compare=False, repr=False)
    """Joint observation before the step."""
    action: slice = field(init=False, compare=False, repr=False)
    """Joint action of the step."""
    reward: slice = field(init=False, compare=False, repr=False)
    """Reward of each agent."""
    next_observation: slice = field(init=False, compare=False, repr=False)
    """Joint observation after the step."""
    terminated: slice = field(init=False, compare=False, repr=False)
    """1 where the agent reached a terminal state, or comes back without having acted."""
    alive: slice = field(init=False, compare=False, repr=False)
    """1 where the agent acted."""
    available: slice = field(init=False, compare=False, repr=False)
    """1 where an action was available before the step; empty unless ``masked``."""
    next_available: slice = field(init=False, compare=False, repr=False)
    """1 where an action is available after the step; empty unless ``masked``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "live", self._live_entries())
        observations, actions = len(self.live), sum(self.action_sizes)
        sizes = {
            "observation": observations,
            "action": actions,
            "reward": self.agents,
            "next_observation": observations,
            "terminated": self.agents,
            "alive": self.agents,
            "available": actions * self.masked,
            "next_available": actions * self.masked,
        }
        for name, part in zip(sizes, consecutive([*sizes.values()]), strict=True):
            object.__setattr__(self, name, part)

    def _live_entries(self) -> IntArray:
        """Return the entries of a whole joint observation that are not always zero."""
        live = np.ones(self.whole_size, dtype=bool)
        if self.always_zero:
            parts = consecutive(self.observation_sizes)
            for part, zero in zip(parts, self.always_zero, strict=True):
                live[part][list(zero)] = False
        return np.flatnonzero(live)

    @property
    def agents(self) -> int:
        """Number of agents, M."""
        return len(self.observation_sizes)

    @property
    def paid(self) -> slice:
        """Columns of all rewards."""
        return self.reward

    @property
    def whole_size(self) -> int:
        """Number of entries of a whole joint observation."""
        return sum(self.observation_sizes)

    @property
    def row_size(self) -> int:
        """Number of float32 entries of a row."""
        return int(self.next_available.stop)

    def place_of(self, entry: int) -> str:
        """Name an entry of a row, for example ``reward of agent 2``.

        >>> layout = Layout(observation_sizes=(3, 2), action_sizes=(1, 1))
        >>> layout.place_of(4), layout.place_of(8)
        ('observation of agent 1', 'reward of agent 1')
        """
        agents = range(self.agents)
        live = [len(self.live_of(agent)) for agent in agents]
        return named_place(
            entry,
            {
                "observation": (self.observation, live),
                "action": (self.action, self.action_sizes),
                "reward": (self.reward, [1] * self.agents),
                "next observation": (self.next_observation, live),
                "terminated": (self.terminated, [1] * self.agents),
                "alive": (self.alive, [1] * self.agents),
                "available action": (self.available, self.action_sizes),
                "next available action": (self.next_available, self.action_sizes),
            },
        )

    def synthetic(self, generator: np.random.Generator, transitions: int) -> FloatArray:
        """Draw random transitions in which every agent acts."""
        rows = generator.standard_normal((transitions, self.row_size), dtype=np.float32)
        rows[:, self.terminated] = 0.0
        rows[:, self.alive] = 1.0
        return rows

    def observation_of(self, agent: int) -> slice:
        """Columns of an agent within the joint observation of a row."""
        whole = consecutive(self.observation_sizes)[agent]
        start, stop = np.searchsorted(self.live, [whole.start, whole.stop]).tolist()
        return slice(start, stop)

    def live_of(self, agent: int) -> IntArray:
        """Entries of an agent's whole observation that rows hold, ascending."""
        whole = consecutive(self.observation_sizes)[agent]
        own: IntArray = self.live[self.observation_of(agent)] - whole.start
        return own

    def action_of(self, agent: int) -> slice:
        """Columns of an agent within a joint action."""
        return consecutive(self.action_sizes)[agent]

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
        """Write E transitions into ``out``, shape (E, row_size); ``masked`` ones need the masks.

        Observations are whole.

        Raises:
            EnvironmentFailed: An entry that is always zero is not.
        """
        out[:, self.observation] = self._live_part(observation)
        out[:, self.action] = action
        with np.errstate(over="ignore"):  # rows that are not finite are refused by name
            out[:, self.reward] = reward
        out[:, self.next_observation] = self._live_part(next_observation)
        out[:, self.terminated] = terminated
        out[:, self.alive] = alive
        if self.masked:
            out[:, self.available], out[:, self.next_available] = available, next_available

    def _live_part(self, observation: FloatArray) -> FloatArray:
        """Leave the entries out that are always zero."""
        if len(self.live) == self.whole_size:
            return observation
        kept = observation[:, self.live]
        if np.count_nonzero(observation) != np.count_nonzero(kept):
            raise EnvironmentFailed(
                "the environment declares entries of its observations always zero that are not; "
                "correct AgentSpec.always_zero"
            )
        return kept

    def whole(self, observation: FloatArray) -> FloatArray:
        """Return whole joint observations, shape (n, sum of sizes), from those of n rows."""
        if len(self.live) == self.whole_size:
            return observation
        filled = np.zeros((len(observation), self.whole_size), observation.dtype)
        filled[:, self.live] = observation
        return filled
