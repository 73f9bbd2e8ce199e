"""Crash-consistent storage in one file: rows in place, and a checksum for each of them.

The file holds a header, two cursors, the checksums and the rows. It has more slots than the table
has capacity, by the longest append: an append never overwrites readable rows, so that the ring is
its own log. A cursor is written before and after each sync, alternately in its two places; a row is
valid if its checksum, which covers its position, matches.

The file is written by system calls, which report a full disk, and rows are read through a mapping,
in huge pages if the file system has them, because minibatches access them at random. What may never
have been written is read by system calls: on a tmpfs reading a hole through a mapping takes room,
and ends the process where there is none.
"""

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fullrank.common.durable import replace_file, write_at
from fullrank.common.errors import InvalidContribution, StorageFailed
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.file_format import (
    CHECKS_AT,
    CURSOR,
    CURSORS_AT,
    FORMAT,
    HEADER,
    INSTANCE_AT,
    INSTANCE_BYTES,
    MARK,
    FileLayout,
    Mapping,
    checksums,
    damaged,
    read_cursor,
    sealed,
)
from fullrank.replay.limits import rows_per_append

_POPULATE_READ = 22
"""MADV_POPULATE_READ of Linux 5.14, for which Python has no name."""
_AT_ONCE_BYTES = 16 * 2**20
"""Rows checked at a time, bytes."""


class RingFile:
    """An open table file, every row of which was checked.

    Args:
        path: A file that ``create`` made.
        sync: Whether rows are on disk before they are published.

    Attributes:
        path: As given.
        instance: Id of this opening of the file, written into it.
        capacity: Most readable rows.
        rows: Shape (slots, row_size) float32, read only.
        tail: Oldest readable position.
        head: One past the newest readable position.
        dropped: Rows lost in a crash of the machine, which were published without ``sync`` or not
            yet.

    Raises:
        Corrupted: The file is damaged where it had been synced.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path, self._sync, self._failed = path, sync, False
        self._file = path.open("r+b", buffering=0)
        self._mapping = mapping = Mapping(path, self._file.fileno())
        self.capacity, self._layout = mapping.capacity, mapping.layout
        self.rows = mapping.rows
        self.instance = token_bytes(INSTANCE_BYTES)
        self._write(self.instance, INSTANCE_AT)
        self._number, self.tail, self.head, self._synced = read_cursor(path, mapping.content)
        self.dropped = self._recover()

    @classmethod
    def create(cls, path: Path, *, row_size: int, capacity: int, sync: bool) -> Self:
        """Create an empty file atomically.

        Raises:
            OSError: The disk does not take it.
        """
        layout = FileLayout(row_size=row_size, slots=capacity + rows_per_append(4 * row_size))
        with replace_file(path) as file:
            file.write(sealed(HEADER.pack(MARK + FORMAT, row_size, capacity, layout.slots)))
            for place in CURSORS_AT:
                file.seek(place)
                file.write(sealed(CURSOR.pack(0, 0, 0, 0)))
            file.truncate(layout.size)
        return cls(path, sync=sync)

    def verify(self, positions: IntArray, rows: FloatArray) -> None:
        """Raise ``Corrupted`` if rows that were read at some positions are not those stored."""
        self._mapping.verify(positions, rows)

    def write(self, first: int, rows: FloatArray) -> None:
        """Fill the slots of positions from ``first`` on; readable rows do not change.

        Raises:
            InvalidContribution: There are more rows than one append may have.
            StorageFailed: The disk does not take them.
        """
        layout = self._layout
        if len(rows) > (longest := layout.slots - self.capacity):
            raise InvalidContribution(f"{len(rows)} rows: an append has at most {longest}")
        checks = checksums(np.arange(first, first + len(rows)), rows)
        for slot, part in layout.runs(first, first + len(rows)):
            self._write(checks[part].data, CHECKS_AT + checks.itemsize * slot)
            reach("checks.written")
            place = layout.rows_at + layout.row_bytes * slot
            self._populate(place, layout.row_bytes * (part.stop - part.start))
            self._write(np.ascontiguousarray(rows[part]).data, place)

    def publish(self, tail: int, head: int) -> None:
        """Make the positions [tail, head) readable; with ``sync``, once they are on disk.

        Raises:
            StorageFailed: The disk does not take it. After a failed sync the state of the file is
                unknown, and every later write fails.
        """
        dropped = max(head, self.head - self._layout.slots), self.head  # some were evicted before
        synced = min(self._synced, head)
        self._point(tail if tail == head else self.tail, head, synced)
        if self._sync:
            self._to_disk()
            synced = head
        reach("rows.synced")
        self._point(tail, head, synced)
        self.tail, self.head, self._synced = tail, head, synced
        self._invalidate(*dropped)

    def _invalidate(self, first: int, last: int) -> None:
        """Let no crash bring back rows that were dropped, in place of those written there later."""
        parts = [
            (held, ~expected)
            for _, held, expected in self._expected(first, last)
            if (self._stored(held) == expected).any()
        ]
        if parts:
            self._to_disk()
            for held, checks in parts:
                self._write(checks.data, CHECKS_AT + checks.itemsize * held.start)
            self._to_disk()

    def _point(self, tail: int, head: int, synced: int) -> None:
        """Write a cursor over the older of the two."""
        self._number += 1
        cursor = sealed(CURSOR.pack(self._number, tail, head, synced))
        self._write(cursor, CURSORS_AT[self._number % 2])

    def _populate(self, place: int, size: int) -> None:
        """Map a range before it is written or read, so that it is cached in huge pages.

        Otherwise it would be cached in pages as small as an append, and gathering would take a
        third longer.
        """
        start = place - place % mmap.PAGESIZE
        with suppress(OSError):  # an older kernel, or no room, which the write reports
            self._mapping.content.madvise(_POPULATE_READ, start, place + size - start)

    def _write(self, data: bytes | memoryview, place: int) -> None:
        if self._failed:
            raise StorageFailed(f"a sync of {self.path} has failed; restart the service")
        try:
            write_at(self._file.fileno(), memoryview(data).cast("B"), place)
        except OSError as error:
            raise StorageFailed(
                f"cannot write {self.path}: {error.strerror}; make room, and it continues"
            ) from error

    def _to_disk(self) -> None:
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            self._failed = True
            raise StorageFailed(f"cannot sync {self.path}: {error.strerror}") from error

    def _recover(self) -> int:
        """Find the readable rows; returns how many rows of the last cursor were lost.

        If a cursor was written before its rows were synced, they may be missing; then the rows that
        they would have evicted are still there.
        """
        whole, evicted = self.head, max(self.tail, self.head - self.capacity)
        self.head = self._first_unsound(evicted, whole)
        tail = max(self.tail, self.head - self.capacity)
        sound = self._first_unsound(tail, evicted)
        unsound = self.head if sound == evicted else sound
        if unsound < self._synced:
            reason = f"the row at position {unsound} is not what was stored"
            raise damaged(self.path, reason)
        self.publish(tail if sound == evicted else evicted, self.head)
        for first, held in self._parts(self.head, self.tail + self._layout.slots):
            written = np.flatnonzero(self._stored(held))
            if len(written):  # by an append, or before a truncation, that a crash cut off
                self._invalidate(first, first + int(written[-1]) + 1)
        return whole - self.head

    def _first_unsound(self, tail: int, head: int) -> int:
        """First position in [tail, head) whose checksum does not match, or head."""
        for first, held, expected in self._expected(tail, head):
            unsound = self._stored(held) != expected
            if unsound.any():
                return first + int(np.argmax(unsound))
        return head

    def _expected(self, first: int, last: int) -> Iterator[tuple[int, slice, NDArray[np.uint32]]]:
        """Checksums of the rows at [first, last), in parts: first position, slots, checksums."""
        for start, held in self._parts(first, last):
            count, row_bytes = held.stop - held.start, self._layout.row_bytes
            place = self._layout.rows_at + row_bytes * held.start
            self._populate(place, row_bytes * count)
            rows = self._read("<f4", place, row_bytes * count).reshape(count, -1)
            yield start, held, checksums(np.arange(start, start + count), rows)

    def _parts(self, first: int, last: int) -> Iterator[tuple[int, slice]]:
        """Split positions [first, last) into parts of limited size: first position, slots."""
        at_once = max(1, _AT_ONCE_BYTES // self._layout.row_bytes)
        for start in range(first, last, at_once):
            for slot, part in self._layout.runs(start, min(last, start + at_once)):
                yield start + part.start, slice(slot, slot + part.stop - part.start)

    def _stored(self, held: slice) -> NDArray[np.uint32]:
        """Checksums stored for some slots; 0 where there was no row yet."""
        return self._read("<u4", CHECKS_AT + 4 * held.start, 4 * (held.stop - held.start))

    def _read(self, dtype: str, place: int, size: int) -> NDArray[Any]:
        return np.frombuffer(os.pread(self._file.fileno(), size, place), dtype)
