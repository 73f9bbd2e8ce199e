"""Episodes as facts of their rows: the packed row of one step, and whole episodes within rows.

``[observation | state | clock | available | action | reward | terminated | length | own rewards |
own ends | earns | entries | derived]``, where the parts of agents lie agent by agent. The clock,
own rewards, with own ends and ``earns``, and the entries of actions that are vectors are there
where the layout asks for them. An episode of L steps has L + 1 rows: the last one holds the
observation, state and available actions after the last step, and in ``length`` the number L, which
is 0 in all other rows. Derived columns follow from the episode and the parameters that played it.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.layout import consecutive, named_place

NO_ACTION = -1.0
"""Action of an agent that could not act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLayout:
    """Columns of each part of a step in its row; ``state_size`` 0: the joint observation."""

    observation_sizes: tuple[int, ...]
    """Entries that hold each agent's observation."""
    action_sizes: tuple[int, ...]
    state_size: int = 0
    clock: int = 0
    """Number of steps whose share that has gone by is the last entry of the state; 0: none is."""
    derived: tuple[tuple[str, int], ...] = ()
    """Names and entries of the derived columns."""
    own_rewards: bool = False
    """True if a row also holds each agent's own reward, and when it is paid."""
    vectors: tuple[int, ...] = ()
    """Entries of each agent's action where it is a vector, continuous or of several choices, and 0
    where it is an index; none: it is one for all agents. A vector is numbered 0, and
    ``NO_ACTION`` where the agent was not alive or had no choice."""
    image_sizes: tuple[int, ...] = ()
    """Bytes of each agent's image, which its observation holds packed; none: observations are
    kept as they are."""
    observation: slice = field(init=False, compare=False, repr=False)
    """Joint observation before the step."""
    state: slice = field(init=False, compare=False, repr=False)
    """Global state before the step, or the joint observation, with the clock."""
    available: slice = field(init=False, compare=False, repr=False)
    """1 where an action may be chosen; an agent that cannot act has none."""
    action: slice = field(init=False, compare=False, repr=False)
    """Index of each agent's action, ``NO_ACTION`` where it could not act; 0 in last rows."""
    reward: int = field(init=False, compare=False, repr=False)
    """Reward of the team, standardised where all episodes have one length."""
    terminated: int = field(init=False, compare=False, repr=False)
    """1 where the step reached a terminal state of the team, not a time limit."""
    length: int = field(init=False, compare=False, repr=False)
    """Number of steps of the episode in its last row, 0 in the others."""
    rewards: slice = field(init=False, compare=False, repr=False)
    """Reward of each agent, standardised as the team's is; empty unless ``own_rewards``."""
    ends: slice = field(init=False, compare=False, repr=False)
    """1 where no reward of the agent can follow: it reached a terminal state, or the team did where
    all share one reward; empty unless ``own_rewards``."""
    earns: slice = field(init=False, compare=False, repr=False)
    """1 where the agent is paid for the step: it acts, or all share one reward; 0 where it is out
    of the game and in last rows; empty unless ``own_rewards``."""
    entries: slice = field(init=False, compare=False, repr=False)
    """Action of each agent for which it is a vector; zero where it could not act."""

    def __post_init__(self) -> None:
        observations, actions = sum(self.observation_sizes), sum(self.action_sizes)
        seen, state, timed, *parts = consecutive(
            (observations, self.state_size, int(self.clock > 0), actions, self.agents)
        )
        state = slice((state if self.state_size else seen).start, timed.stop)
        end = parts[-1].stop
        names = ("observation", "state", "available", "action", "reward", "terminated", "length")
        for name, part in zip(names, [seen, state, *parts, end, end + 1, end + 2], strict=True):
            object.__setattr__(self, name, part)
        own = self.agents * self.own_rewards
        parts = consecutive((end + 3, own, own, own, sum(self.vectors)))
        for name, part in zip(("rewards", "ends", "earns", "entries"), parts[1:], strict=True):
            object.__setattr__(self, name, part)

    @property
    def agents(self) -> int:
        """Number of agents, n."""
        return len(self.observation_sizes)

    @property
    def state_entries(self) -> int:
        """Number of entries of ``state``."""
        entries: int = self.state.stop - self.state.start
        return entries

    @property
    def paid(self) -> slice:
        """Column of the team's reward."""
        return slice(self.reward, self.reward + 1)

    @property
    def row_size(self) -> int:
        """Number of float32 entries of a row."""
        columns: int = self.entries.stop + sum(size for _, size in self.derived)
        return columns

    @property
    def columns(self) -> dict[str, slice]:
        """Derived columns by name."""
        parts = consecutive([self.entries.stop, *(size for _, size in self.derived)])
        return {name: part for (name, _), part in zip(self.derived, parts[1:], strict=True)}

    def packed(self, observation: FloatArray) -> FloatArray:
        """Return joint observations as rows hold them, shape (..., sum of observation sizes)."""
        if not self.image_sizes:
            return observation
        parts = np.split(observation, np.cumsum(self.image_sizes)[:-1], axis=-1)
        return np.concatenate([packed(part) for part in parts], axis=-1)

    def of_images(self) -> "EpisodeLayout":
        """Return the layout with all observations as packed images, and no state beside them."""
        sizes = self.observation_sizes
        return replace(
            self,
            observation_sizes=tuple(map(packed_size, sizes)),
            image_sizes=sizes,
            state_size=0,
        )

    def place_of(self, entry: int) -> str:
        """Name an entry of a row, for example ``observation of agent 2``.

        >>> layout = EpisodeLayout(observation_sizes=(3, 2), action_sizes=(4, 4))
        >>> layout.place_of(3), layout.place_of(layout.reward)
        ('observation of agent 1', 'reward')
        """
        return named_place(
            entry,
            {
                "observation": (self.observation, self.observation_sizes),
                "state": (self.state, ()),
                "available action": (self.available, self.action_sizes),
                "action": (self.action, [1] * self.agents),
                "reward": (slice(self.reward, self.terminated), ()),
                "terminated": (slice(self.terminated, self.length), ()),
                "length": (slice(self.length, self.length + 1), ()),
                "own reward": (self.rewards, [1] * self.agents * self.own_rewards),
                "own end": (self.ends, [1] * self.agents * self.own_rewards),
                "earns": (self.earns, [1] * self.agents * self.own_rewards),
                "action entry": (self.entries, self.vectors),
                **{name: (part, ()) for name, part in self.columns.items()},
            },
        )

    def synthetic(self, generator: np.random.Generator, episodes: int) -> FloatArray:
        """Draw random episodes of 1 to 8 steps in which all act and every action is available."""
        lengths = generator.integers(1, 9, size=episodes)
        ends = np.cumsum(lengths + 1) - 1
        rows = generator.standard_normal((int(ends[-1]) + 1, self.row_size), dtype=np.float32)
        if self.image_sizes:
            seen = (len(rows), sum(self.observation_sizes))
            rows[:, self.observation] = generator.integers(0, 2**24, size=seen)
        rows[:, self.available] = 1.0
        rows[:, self.action] = generator.integers(
            0, self.action_sizes, size=(len(rows), self.agents)
        )
        rows[:, self.action][:, np.array(self.vectors) > 0] = 0.0
        rows[:, self.terminated] = rows[:, self.length] = 0.0
        rows[ends, self.length] = lengths
        rows[ends - 1, self.terminated] = generator.random(episodes) < 0.5
        rows[:, self.ends] = rows[:, self.terminated, None]
        rows[:, self.earns] = rows[:, self.length, None] == 0.0
        return rows


def packed_size(size: int) -> int:
    """Return the number of entries that hold so many bytes."""
    return -(-size // 3)


def packed(image: FloatArray) -> FloatArray:
    """Pack bytes by three, shape (..., size), into whole numbers below 2^24 that float32 can hold.

    >>> packed(np.array([1, 2, 0, 255, 255, 255, 7], np.float32)).tolist()
    [513.0, 16777215.0, 7.0]
    """
    size = packed_size(image.shape[-1])
    padded = np.zeros((*image.shape[:-1], size, 3), np.float32)
    padded.reshape(*image.shape[:-1], -1)[..., : image.shape[-1]] = image
    entries: FloatArray = padded[..., 0] + 256 * padded[..., 1] + 65536 * padded[..., 2]
    return entries


def episodes_in(rows: FloatArray, length: int) -> list[slice]:
    """Return the rows of each episode, where the rows hold whole episodes.

    Args:
        rows: Packed steps, shape (n, row_size).
        length: Column of the length.

    Raises:
        InvalidContribution: The rows are not whole episodes.
    """
    ends = np.flatnonzero(rows[:, length])
    starts = ends - rows[ends, length].astype(np.int64)
    expected = np.concatenate([[0], ends + 1])
    if not np.array_equal(np.concatenate([starts, [len(rows)]]), expected):
        raise InvalidContribution("a minibatch of episodes is made of whole episodes")
    return [slice(int(start), int(end) + 1) for start, end in zip(starts, ends, strict=True)]


class Ends:
    """Positions and lengths of the episodes that end in [first, head).

    Args:
        column: Column of the length.
        first: First position.

    Attributes:
        head: One past the last position examined.
    """

    def __init__(self, column: int, *, first: int) -> None:
        self.column, self.head = column, first
        self._ends: IntArray = np.empty(0, np.int64)
        self._starts: IntArray = np.empty(0, np.int64)

    def extend(self, lengths: FloatArray, *, tail: int) -> None:
        """Examine the rows from the head on; episodes that begin before ``tail`` are dropped.

        Args:
            lengths: Lengths in these rows, shape (n,).
            tail: Oldest position that is held.

        Raises:
            InvalidContribution: Episodes overlap.
        """
        ends = np.flatnonzero(lengths)
        starts = self.head + ends - lengths[ends].astype(np.int64)
        before = np.concatenate([self._ends[-1:], self.head + ends])
        if (starts[-len(before) + 1 :] <= before[:-1]).any():
            raise InvalidContribution("the lengths in these rows are not those of episodes")
        kept = int(np.searchsorted(self._starts, tail))
        self._ends = np.concatenate([self._ends[kept:], self.head + ends])
        self._starts = np.concatenate([self._starts[kept:], starts])
        self.head += len(lengths)

    def whole(self, *, tail: int, head: int, newest: int) -> tuple[IntArray, IntArray]:
        """Return starts and ends of the newest whole episodes within [tail, head)."""
        first = int(np.searchsorted(self._starts, tail))
        last = int(np.searchsorted(self._ends, head))
        kept = slice(max(first, last - newest), max(first, last))
        return self._starts[kept], self._ends[kept]
