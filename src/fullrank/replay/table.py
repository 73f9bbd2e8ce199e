"""A replay table: a ring of packed rows with positions that never repeat.

Positions count every row ever acknowledged; row p lies in slot p mod capacity. ``[tail, head)`` is
what can be read. An append names the position of its first row, so a repeated append changes
nothing and a gap is refused.
"""

from dataclasses import dataclass

import numpy as np

from fullrank.errors import InvalidContribution, OutOfRange
from fullrank.failpoints import reach
from fullrank.seeding import stream
from fullrank.types import FloatArray, IntArray

TABLE = "transitions"
"""The one table of a run with a shared minibatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A minibatch as a pure function: positions drawn with replacement from [tail, head)."""

    table: str
    seed: int
    iteration: int
    tail: int
    head: int
    size: int

    def positions(self) -> IntArray:
        """Positions to gather, shape (size,), the same for every learner."""
        generator = stream(self.seed, "sample", self.iteration)
        return generator.integers(self.tail, self.head, size=self.size, dtype=np.int64)


class Table:
    """A ring over storage that the caller owns (memory, or a mapped file).

    Args:
        rows: Shape (capacity, row_size) float32.
        cursor: Shape (2,) int64; holds the head and the highest head there ever was, so that
            mapped storage survives its process.
    """

    def __init__(self, rows: FloatArray, cursor: IntArray) -> None:
        self._rows = rows
        self._cursor = cursor

    @property
    def capacity(self) -> int:
        """Rows held at most."""
        return len(self._rows)

    @property
    def row_size(self) -> int:
        """Entries of a row."""
        return int(self._rows.shape[1])

    @property
    def head(self) -> int:
        """Position that the next new row will get; every position below it is acknowledged."""
        return int(self._cursor[0])

    @property
    def tail(self) -> int:
        """Oldest position still held."""
        return max(0, int(self._cursor[1]) - self.capacity)

    def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows at ``first_position``; returns the head, which acknowledges them.

        Rows below the head are repeats of an append whose acknowledgement was lost. They are
        accepted without being stored again if they are the rows already held.

        Raises:
            OutOfRange: ``first_position`` lies beyond the head, which would leave a gap.
            InvalidContribution: Wrong row size, more rows than the capacity, a non-finite value, or
                a repeat that differs from what is held.
        """
        self._check(first_position, rows)
        head = self.head
        known = min(head - first_position, len(rows))
        if known > 0:
            held = self.gather(np.arange(max(first_position, self.tail), first_position + known))
            if held.tobytes() != rows[known - len(held) : known].tobytes():
                raise InvalidContribution(
                    f"rows {first_position}..{first_position + known - 1} are already stored with "
                    "other values; a position is written once"
                )
        new = rows[max(known, 0) :]
        slots = np.arange(head, head + len(new)) % self.capacity
        # In this order a process killed in between leaves nothing readable half overwritten.
        self._cursor[1] = max(int(self._cursor[1]), head + len(new))
        self._rows[slots] = new
        reach("rows.written")
        self._cursor[0] = head + len(new)
        return self.head

    def truncate(self, head: int) -> None:
        """Forget the rows at ``head`` and beyond: a resumed run writes them again.

        Positions that were evicted meanwhile do not come back.
        """
        self._cursor[0] = min(self.head, max(head, self.tail))

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
        return np.take(self._rows, positions % self.capacity, axis=0, out=out, mode="clip")

    def check(self, sample: Sample) -> None:
        """Refuse a sample that this table cannot serve exactly.

        Raises:
            OutOfRange: Its head is not reached yet, its tail is evicted, or it is empty.
        """
        if not 0 <= sample.tail < sample.head or sample.size < 1:
            raise OutOfRange(f"an empty sample: tail {sample.tail}, head {sample.head}")
        if sample.head > self.head:
            raise OutOfRange(f"position {sample.head - 1} is not written yet: head {self.head}")
        if sample.tail < self.tail:
            raise OutOfRange(f"position {sample.tail} was evicted: the tail is {self.tail}")
