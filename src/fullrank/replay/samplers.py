"""Samplers: uniform, proportional to priorities by prefix sums, and each item once.

The priority of a row is a whole number of tickets, 1 when sampling uniformly; P(row) = tickets /
all tickets is the proportional variant of [Schaul16, Sec. 3.3]. An episode has the tickets of its
rows, so that it is drawn as often as one of its rows would be. Differs from the paper: the
priority is a function of the row and not of the error of its last use; there are no importance
weights; priorities never change, so that prefix sums replace the sum tree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fullrank.common.errors import InvalidContribution, OutOfRange
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.episodes import Ends
from fullrank.replay.items import Runs

MOST_EXTRA = 2**20
"""Most tickets of a row beyond its first one: totals stay far below 2^63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Priority:
    """A row has 1 + floor(gain x the largest magnitude among some of its entries) tickets.

    Tickets are integers computed by exactly rounded operations: every process draws the same rows.
    """

    first: int
    """First of these entries."""
    count: int
    """Number of these entries."""
    gain: float
    """Tickets for each unit of magnitude."""

    def check(self, *, row_size: int) -> None:
        """Raise ``InvalidContribution`` unless it is valid for rows of this size."""
        if not 0 <= self.first < self.first + self.count <= row_size:
            raise InvalidContribution(
                f"sample.priority: {self.count} entries from {self.first} on, of rows of {row_size}"
            )
        if not 0 < self.gain <= MOST_EXTRA:
            raise InvalidContribution(
                f"sample.priority.gain {self.gain}: it must be positive, at most {MOST_EXTRA}"
            )

    @property
    def entries(self) -> slice:
        """Columns of these entries in a row."""
        return slice(self.first, self.first + self.count)

    def tickets(self, entries: FloatArray) -> IntArray:
        """Tickets of each row, shape (n,), from these entries of it, shape (n, count)."""
        largest: FloatArray = np.abs(entries).max(axis=1)
        extra = np.minimum(self.gain * largest.astype(np.float64), MOST_EXTRA)
        tickets: IntArray = 1 + extra.astype(np.int64)
        return tickets


class Tickets:
    """Prefix sums of the tickets over positions [first, head).

    Args:
        priority: Tickets of a row.
        capacity: Positions needed at a time.
        first: First position.

    Attributes:
        head: One past the last position counted.
    """

    def __init__(self, priority: Priority, *, capacity: int, first: int) -> None:
        self.priority, self.head = priority, first
        self._first = first
        # Tickets before each position from ``_first`` to the head. Room for twice the capacity,
        # so that old ones are dropped once in a capacity.
        self._before = np.zeros(2 * capacity + 1, dtype=np.int64)

    def extend(self, entries: FloatArray, *, tail: int) -> None:
        """Count the rows from the head on, at most ``capacity`` beyond ``tail``.

        Args:
            entries: Entries that determine the priority, shape (n, count).
            tail: Earlier positions are no longer needed.
        """
        if self.head - self._first + len(entries) >= len(self._before):
            kept = self._before[tail - self._first : self.head - self._first + 1]
            self._before[: len(kept)] = kept
            self._first = tail
        start = self.head - self._first
        new = self._before[start + 1 : start + 1 + len(entries)]
        new[:] = self._before[start] + np.cumsum(self.priority.tickets(entries))
        self.head += len(entries)

    def before(self, position: int) -> int:
        """Number of tickets of all positions before ``position``."""
        return int(self._before[position - self._first])

    def between(self, first: IntArray, last: IntArray) -> IntArray:
        """Number of tickets of the positions from each ``first`` to its ``last``, shape (n,)."""
        tickets: IntArray = self._before[last + 1 - self._first] - self._before[first - self._first]
        return tickets

    def holders(self, tickets: IntArray) -> IntArray:
        """The position that holds each ticket, shape (n,)."""
        counted = self._before[: self.head - self._first + 1]
        order = np.argsort(tickets)  # neighbouring searches share cache lines
        positions = np.empty_like(tickets)
        positions[order] = np.searchsorted(counted, tickets[order], side="right")
        return self._first - 1 + positions


@dataclass(frozen=True, slots=True)
class RowDraw:
    """Draw single rows, each of which is an item."""

    length: ClassVar[None] = None
    """No column holds a length."""
    searched: ClassVar[bool] = False
    """The number of rows is that of the items, and their positions follow from the range."""

    def check(self, *, row_size: int) -> None:
        """Accept rows of every size."""

    def runs(
        self, sample: "Sample", ends_of: Callable[[int], Ends], tickets: Tickets | None
    ) -> Runs:
        """Return the position of each drawn row; see ``EpisodeDraw.runs``."""
        return Runs(sample.positions(tickets), np.ones(sample.size, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDraw:
    """Draw whole episodes from the newest ones."""

    searched: ClassVar[bool] = True
    """Episodes are searched for in the table."""
    length: int
    """Column of a row that holds the number of steps in an episode's last row, else 0."""
    newest: int
    """Number of episodes that may be drawn."""

    def check(self, *, row_size: int) -> None:
        """Raise ``InvalidContribution`` unless it is valid for rows of this size."""
        if not (0 <= self.length < row_size and self.newest >= 1):
            raise InvalidContribution(
                f"sample.episodes: the {self.newest} newest by entry {self.length}, of rows of "
                f"{row_size}"
            )

    def runs(
        self, sample: "Sample", ends_of: Callable[[int], Ends], tickets: Tickets | None
    ) -> Runs:
        """Return the rows of each drawn episode.

        Args:
            sample: The sample.
            ends_of: Returns the episodes of the table by the column of their lengths.
            tickets: As for ``Sample.positions``.

        Raises:
            OutOfRange: No whole episode lies in the range.
        """
        tail, head = sample.tail, sample.head
        first, last = ends_of(self.length).whole(tail=tail, head=head, newest=self.newest)
        if not len(first):
            raise OutOfRange(f"no whole episode lies in [{tail}, {head})")
        if tickets is None:
            drawn = sample.drawn(len(first))
        else:
            until = np.cumsum(tickets.between(first, last))
            ticket = sample.generator.integers(0, until[-1], size=sample.size, dtype=np.int64)
            drawn = np.searchsorted(until, ticket, side="right")
        return Runs(first[drawn], last[drawn] - first[drawn] + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class EachOnce:
    """Draw every item of a collection once in each epoch: a slice of a permutation."""

    collection: int
    """Number of the collection, which lies in [tail, head) alone."""
    epoch: int
    """Number of the pass over it."""
    part: int
    """Number of the slice within the epoch, from 0."""

    def drawn(self, items: int, *, seed: int, size: int) -> IntArray:
        """Numbers of the drawn items, shape (size,).

        Raises:
            OutOfRange: The collection has too few items, or they make no whole number of slices.
        """
        if items % size or (self.part + 1) * size > items:
            raise OutOfRange(
                f"slice {self.part} of {size} items each of collection {self.collection}, which "
                f"has {items} items"
            )
        order = stream(seed, "each_once", self.collection, self.epoch).permutation(items)
        return order[self.part * size :][:size]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A minibatch as a pure function of the rows in [tail, head)."""

    table: str
    seed: int
    iteration: int
    tail: int
    head: int
    size: int
    """Number of rows, or of episodes, in the minibatch."""
    priority: Priority | None = None
    """None: uniform sampling."""
    draw: RowDraw | EpisodeDraw = RowDraw()
    """What an item is, and how its rows are found."""
    once: EachOnce | None = None
    """None: items are drawn with replacement."""

    @property
    def searched(self) -> bool:
        """Return whether rows have to be examined to find those that are drawn."""
        return self.draw.searched or self.priority is not None

    @property
    def generator(self) -> np.random.Generator:
        """Return a generator of the iteration's draws, from the first one on."""
        return stream(self.seed, "sample", self.iteration)

    def check(self, *, row_size: int) -> None:
        """Raise ``InvalidContribution`` unless it is valid for rows of this size."""
        if self.priority is not None:
            if self.once is not None:
                raise InvalidContribution("sample.once draws every item once, and has no priority")
            self.priority.check(row_size=row_size)
        self.draw.check(row_size=row_size)

    def positions(self, tickets: Tickets | None = None) -> IntArray:
        """Positions to gather, shape (size,), the same for every learner.

        Args:
            tickets: Prefix sums, for a sample with a priority; None samples uniformly.
        """
        if tickets is None:
            return self.tail + self.drawn(self.head - self.tail)
        low, high = tickets.before(self.tail), tickets.before(self.head)
        return tickets.holders(self.generator.integers(low, high, size=self.size, dtype=np.int64))

    def drawn(self, items: int) -> IntArray:
        """Numbers of the items that are drawn with equal probability, shape (size,)."""
        if self.once is not None:
            return self.once.drawn(items, seed=self.seed, size=self.size)
        return self.generator.integers(0, items, size=self.size, dtype=np.int64)
