"""A replay table: a ring of packed rows with positions that never repeat.

Positions count all acknowledged rows; ``[tail, head)`` is readable. An append names the position of
its first row, so that a repeated append changes nothing and a gap is refused.
"""

import numpy as np

from fullrank.common.errors import InvalidContribution, OutOfRange
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.samplers import Priority, Sample, Tickets
from fullrank.replay.storage import Storage

TABLE = "transitions"
"""The one table of a run with a shared minibatch."""


class Table:
    """The rows of a run, by position.

    Args:
        storage: At least ``capacity`` slots; existing rows are kept.
        capacity: Rows held at most.

    Attributes:
        repeated: Rows that were appended more than once.
    """

    def __init__(self, storage: Storage, *, capacity: int) -> None:
        self._storage, self.capacity = storage, capacity
        self._tickets: Tickets | None = None
        self.repeated = 0

    @property
    def row_size(self) -> int:
        """Entries of a row."""
        return int(self._storage.rows.shape[1])

    @property
    def head(self) -> int:
        """Position of the next new row; every position below it is acknowledged."""
        return self._storage.head

    @property
    def tail(self) -> int:
        """Oldest position still held."""
        return self._storage.tail

    def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows at ``first_position``; returns the head, which acknowledges them.

        Rows below the head are repeats of an append whose acknowledgement was lost. They are
        accepted without being stored again if they are the rows already held.

        Raises:
            OutOfRange: ``first_position`` lies beyond the head, which would leave a gap.
            InvalidContribution: Wrong row size, more rows than the capacity, a non-finite value, or
                a repeat that differs from what is held.
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
            self._storage.write(self.head, rows[known:])
            reach("rows.written")
            self._storage.publish(max(self.tail, head - self.capacity), head)
        return self.head

    def truncate(self, head: int) -> None:
        """Discard the rows at ``head`` and beyond: a resumed run writes them again.

        Positions that were evicted meanwhile do not come back.

        Raises:
            StorageFailed: The storage does not take it.
        """
        if head < self.head:
            self._tickets = None
            self._storage.publish(self.tail, max(head, self.tail))

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

    def gather(self, positions: IntArray, out: FloatArray | None = None) -> FloatArray:
        """Rows at ``positions`` (all within [tail, head)), shape (n, row_size)."""
        rows = self._storage.rows
        return np.take(rows, positions % len(rows), axis=0, out=out, mode="clip")

    def minibatch(self, sample: Sample) -> FloatArray:
        """The rows of a sample, shape (size, row_size).

        They are a pure function of the sample and of the rows in its range.

        Raises:
            OutOfRange: As ``check``.
            InvalidContribution: As ``check``.
        """
        self.check(sample)
        tickets = self._counted(sample.priority) if sample.priority is not None else None
        return self.gather(sample.positions(tickets))

    def _counted(self, priority: Priority) -> Tickets:
        """Prefix sums over all rows held, extended by the rows added since the last call."""
        tickets = self._tickets
        if tickets is None or tickets.priority != priority or tickets.head < self.tail:
            tickets = Tickets(priority, capacity=self.capacity, first=self.tail)
        rows = self._storage.rows
        slots = np.arange(tickets.head, self.head) % len(rows)
        tickets.extend(rows[:, priority.entries][slots], tail=self.tail)
        self._tickets = tickets
        return tickets

    def check(self, sample: Sample) -> None:
        """Raise if this table cannot serve a sample exactly.

        Raises:
            OutOfRange: Its head is not reached yet, its tail is evicted, or it is empty.
            InvalidContribution: Its priority names entries that the rows do not have.
        """
        if not 0 <= sample.tail < sample.head or sample.size < 1:
            raise OutOfRange(f"an empty sample: tail {sample.tail}, head {sample.head}")
        if sample.head > self.head:
            raise OutOfRange(f"position {sample.head - 1} is not written yet: head {self.head}")
        if sample.tail < self.tail:
            raise OutOfRange(f"position {sample.tail} was evicted: the tail is {self.tail}")
        if sample.priority is not None:
            sample.priority.check(row_size=self.row_size)
