"""A replay table: a ring of packed rows with positions that never repeat, read by samples.

Positions count all acknowledged rows; ``[tail, head)`` is readable. An append names the position of
its first row, so that a repeated append has no effect and a gap is refused.
"""

from collections.abc import Iterator

import numpy as np

from fullrank.common.errors import InvalidContribution, OutOfRange
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.episodes import Ends
from fullrank.replay.items import Runs
from fullrank.replay.limits import rows_per_append
from fullrank.replay.samplers import Priority, Sample, Tickets
from fullrank.replay.storage import Slots, Storage


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

    def gather(self, positions: IntArray) -> FloatArray:
        """Rows at ``positions`` (all within [tail, head)), shape (n, row_size).

        Raises:
            Corrupted: A row of a file is not what was stored.
        """
        held = self._slots.rows
        rows = np.take(held, positions % len(held), axis=0, mode="clip")
        self._slots.verify(positions, rows)
        return rows

    def _added(self, first: int) -> Iterator[FloatArray]:
        """The rows from a position on, in parts."""
        head, step = self.head, rows_per_append(4 * self.row_size)
        for start in range(first, head, step):
            yield self.gather(np.arange(start, min(head, start + step)))

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
        for rows in self._added(tickets.head):
            tickets.extend(rows[:, priority.entries], tail=self.tail)
        self._tickets = tickets
        return tickets

    def _examined(self, length: int) -> Ends:
        """Episodes by position over all rows held, extended by the rows added since."""
        ends = self._ends
        if ends is None or ends.column != length or ends.head < self.tail:
            ends = Ends(length, first=self.tail)
        for rows in self._added(ends.head):
            ends.extend(rows[:, length], tail=self.tail)
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


TABLE = "transitions"
"""The one table of a run with a shared minibatch."""


class Table(TableReader):
    """The rows of a run, by position.

    Args:
        storage: At least ``capacity`` slots; existing rows are kept.
        capacity: Rows held at most.

    Attributes:
        repeated: Rows that were appended more than once.
    """

    def __init__(self, storage: Storage, *, capacity: int) -> None:
        super().__init__(storage, capacity=capacity)
        self._writable = storage
        self.repeated = 0

    def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows at ``first_position``; returns the head, which acknowledges them.

        Rows below the head are repeats of an append whose acknowledgement was lost. They are
        accepted without being stored again if they are the rows already held.

        Raises:
            OutOfRange: ``first_position`` lies beyond the head, which would leave a gap.
            InvalidContribution: Wrong row size, more rows than the capacity, a non-finite value, or
                a repeat that differs from the held rows.
            StorageFailed: The storage does not take them.
        """
        self._check(first_position, rows)
        known = min(self.head - first_position, len(rows))
        if known > 0:
            held = self.gather(np.arange(max(first_position, self.tail), first_position + known))
            if held.tobytes() != rows[known - len(held) : known].tobytes():
                raise InvalidContribution(
                    f"rows {first_position}..{first_position + known - 1} are already stored with "
                    "other values; a position is written once"
                )
            self.repeated += known
        if known < len(rows):
            head = first_position + len(rows)
            self._writable.write(self.head, rows[known:])
            reach("rows.written")
            self._writable.publish(max(self.tail, head - self.capacity), head)
        return self.head

    def truncate(self, head: int) -> None:
        """Discard the rows at ``head`` and beyond: a resumed run writes them again.

        Positions that were evicted meanwhile do not come back: a table without rows before ``head``
        begins there.

        Raises:
            StorageFailed: The storage does not take it.
        """
        is_empty = self.tail == self.head or head <= self.tail
        if head < self.head or (is_empty and head > self.head):
            self.forget_index()
            self._writable.publish(head if is_empty else self.tail, head)

    def _check(self, first_position: int, rows: FloatArray) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.row_size:
            raise InvalidContribution(
                f"rows of shape {rows.shape} do not fit a table of row size {self.row_size}"
            )
        if len(rows) > self.capacity:
            raise InvalidContribution(f"{len(rows)} rows exceed the capacity of {self.capacity}")
        if not 0 <= first_position <= self.head:
            raise OutOfRange(
                f"append at position {first_position} would leave a gap: the head is {self.head}"
            )
        if not np.isfinite(rows).all():
            raise InvalidContribution("a transition holds a value that is not finite")
