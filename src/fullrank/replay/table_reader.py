"""Reading of a replay table: samples and the rows that they draw."""

import numpy as np

from fullrank.common.errors import OutOfRange
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.episodes import Ends
from fullrank.replay.items import Runs
from fullrank.replay.samplers import Priority, Sample, Tickets
from fullrank.replay.storage import Slots


class TableReader:
    """The rows of a run, by position.

    Args:
        slots: Slots that hold the rows.
        capacity: Rows held at most.
    """

    def __init__(self, slots: Slots, *, capacity: int) -> None:
        self._slots, self.capacity = slots, capacity
        self._tickets: Tickets | None = None
        self._ends: Ends | None = None

    @property
    def row_size(self) -> int:
        """Entries of a row."""
        return int(self._slots.rows.shape[1])

    @property
    def head(self) -> int:
        """Position of the next new row; every position below it is acknowledged."""
        return self._slots.head

    @property
    def tail(self) -> int:
        """Oldest position still held."""
        return self._slots.tail

    def forget_index(self) -> None:
        """Examine all rows again: some rows were replaced."""
        self._tickets = self._ends = None

    def gather(self, positions: IntArray, out: FloatArray | None = None) -> FloatArray:
        """Rows at ``positions`` (all within [tail, head)), shape (n, row_size)."""
        rows = self._slots.rows
        return np.take(rows, positions % len(rows), axis=0, out=out, mode="clip")

    def entries(self, positions: IntArray, part: slice) -> FloatArray:
        """Some entries of the rows at ``positions``, shape (n, entries)."""
        rows = self._slots.rows
        return rows[:, part][positions % len(rows)]

    def minibatch(self, sample: Sample) -> FloatArray:
        """The rows of a sample, shape (size, row_size), or all rows of its episodes.

        They are a pure function of the sample and of the rows in its range.

        Raises:
            OutOfRange: As ``check``.
            InvalidContribution: As ``check``.
        """
        return self.gather(self.runs(sample).positions())

    def runs(self, sample: Sample) -> Runs:
        """Return the rows of each item that a sample draws.

        Raises:
            OutOfRange: As ``check``, or no whole episode lies in the sample's range.
            InvalidContribution: As ``check``, or the rows are not episodes.
        """
        self.check(sample)
        tickets = self._counted(sample.priority) if sample.priority is not None else None
        return sample.draw.runs(sample, self._examined, tickets)

    def _counted(self, priority: Priority) -> Tickets:
        """Prefix sums over all rows held, extended by the rows added since the last call."""
        tickets = self._tickets
        if tickets is None or tickets.priority != priority or tickets.head < self.tail:
            tickets = Tickets(priority, capacity=self.capacity, first=self.tail)
        added = np.arange(tickets.head, self.head)
        tickets.extend(self.entries(added, priority.entries), tail=self.tail)
        self._tickets = tickets
        return tickets

    def _examined(self, length: int) -> Ends:
        """Episodes by position over all rows held, extended by the rows added since."""
        ends = self._ends
        if ends is None or ends.column != length or ends.head < self.tail:
            ends = Ends(length, first=self.tail)
        added = np.arange(ends.head, self.head)
        ends.extend(self.entries(added, slice(length, length + 1))[:, 0], tail=self.tail)
        self._ends = ends
        return ends

    def check(self, sample: Sample) -> None:
        """Raise if this table cannot serve a sample exactly.

        Raises:
            OutOfRange: Its head is not reached yet, its tail is evicted, or it is empty.
            InvalidContribution: Its priority or episodes name entries that the rows do not have, or
                it has a priority though it draws every item once.
        """
        if not 0 <= sample.tail < sample.head or sample.size < 1:
            raise OutOfRange(f"an empty sample: tail {sample.tail}, head {sample.head}")
        if sample.head > self.head:
            raise OutOfRange(f"position {sample.head - 1} is not written yet: head {self.head}")
        if sample.tail < self.tail:
            raise OutOfRange(f"position {sample.tail} was evicted: the tail is {self.tail}")
        sample.check(row_size=self.row_size)
