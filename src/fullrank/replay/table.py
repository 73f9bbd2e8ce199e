"""A replay table: a ring of packed rows with positions that never repeat.

Positions count all acknowledged rows; ``[tail, head)`` is readable. An append names the position of
its first row, so that a repeated append has no effect and a gap is refused.
"""

import numpy as np

from fullrank.common.errors import InvalidContribution, OutOfRange
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray
from fullrank.replay.storage import Storage
from fullrank.replay.table_reader import TableReader

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

        Positions that were evicted meanwhile do not come back.

        Raises:
            StorageFailed: The storage does not take it.
        """
        if head < self.head:
            self.forget_index()
            self._writable.publish(self.tail, max(head, self.tail))

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
