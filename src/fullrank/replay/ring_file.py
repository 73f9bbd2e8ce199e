"""Crash-consistent storage in one file: rows in place, and a checksum for each of them.

The file holds a header, two cursors, the checksums and the rows. It has more slots than the table
has capacity, by the longest append: an append never overwrites readable rows, so that the ring is
its own log. A cursor is written before and after each sync, alternately in its two places; a row is
valid if its checksum, which covers its position, matches.

The file is written by system calls, which report a full disk, and read through a mapping, in huge
pages if the file system has them, because minibatches access it at random.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Self

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from fullrank.common.durable import replace_file
from fullrank.common.errors import Corrupted, InvalidContribution, StorageFailed, VersionMismatch
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray
from fullrank.replay.limits import rows_per_append

_POPULATE_READ = 22
"""MADV_POPULATE_READ of Linux 5.14, for which Python has no name."""
_PAGE = 4096
_HEADER = struct.Struct("<8sQQQ")
"""Mark, entries of a row, capacity, slots."""
_MARK, _FORMAT = b"FRTABLE", b"1"
"""First bytes of a table's file, and the version of its format in the byte after them."""
_CURSOR = struct.Struct("<QQQQ")
"""Number of the cursor, tail, head, and the head that is on disk."""
_CRC = struct.Struct("<I")
"""CRC-32C of a header or cursor, behind it."""
_CURSORS_AT = (_PAGE, _PAGE + 512)
"""Offsets of the cursors, in two sectors: a crash tears one of them at most."""
_CHECKS_AT = 2 * _PAGE
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio: spreads neighbouring positions over all bits of a checksum."""
_AT_ONCE = 2**16
"""Rows checked at a time."""


class RingFile:
    """An open table file, every row of which was checked.

    Args:
        path: A file that ``create`` made.
        sync: Whether rows are on disk before they are published.

    Attributes:
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
        self._path, self._sync, self._failed = path, sync, False
        self._file = path.open("r+b", buffering=0)
        row_size, self.capacity, slots = _read_header(path, self._file.read(_PAGE))
        self._layout = layout = _Layout(row_size=row_size, slots=slots)
        if (size := path.stat().st_size) != layout.size:
            raise _damaged(path, f"it has {size} bytes instead of {layout.size}")
        content = mmap.mmap(self._file.fileno(), layout.size, access=mmap.ACCESS_READ)
        with suppress(OSError, AttributeError):  # a kernel, or a system, without huge pages
            content.madvise(mmap.MADV_HUGEPAGE)
        self._content = content
        self._checks = np.frombuffer(content, "<u4", layout.slots, _CHECKS_AT)
        entries = layout.slots * row_size
        self.rows = np.frombuffer(content, "<f4", entries, layout.rows_at).reshape(-1, row_size)
        self._number, self.tail, self.head, self._synced = _read_cursor(path, content)
        self.dropped = self._recover()

    @classmethod
    def create(cls, path: Path, *, row_size: int, capacity: int, sync: bool) -> Self:
        """Create an empty file atomically.

        Raises:
            OSError: The disk does not take it.
        """
        layout = _Layout(row_size=row_size, slots=capacity + rows_per_append(4 * row_size))
        with replace_file(path) as file:
            file.write(_sealed(_HEADER.pack(_MARK + _FORMAT, row_size, capacity, layout.slots)))
            for place in _CURSORS_AT:
                file.seek(place)
                file.write(_sealed(_CURSOR.pack(0, 0, 0, 0)))
            file.truncate(layout.size)
        return cls(path, sync=sync)

    def write(self, first: int, rows: FloatArray) -> None:
        """Fill the slots of positions from ``first`` on; readable rows do not change.

        Raises:
            InvalidContribution: There are more rows than one append may have.
            StorageFailed: The disk does not take them.
        """
        layout = self._layout
        if len(rows) > (longest := layout.slots - self.capacity):
            raise InvalidContribution(f"{len(rows)} rows: an append has at most {longest}")
        checks = _checksums(first, rows)
        for slot, part in layout.runs(first, first + len(rows)):
            self._write(checks[part].data, _CHECKS_AT + checks.itemsize * slot)
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
        synced = min(self._synced, head)
        self._point(self.tail, head, synced)
        if self._sync:
            self._to_disk()
            synced = head
        reach("rows.synced")
        self._point(tail, head, synced)
        self.tail, self.head, self._synced = tail, head, synced

    def _point(self, tail: int, head: int, synced: int) -> None:
        """Write a cursor over the older of the two."""
        self._number += 1
        cursor = _sealed(_CURSOR.pack(self._number, tail, head, synced))
        self._write(cursor, _CURSORS_AT[self._number % 2])

    def _populate(self, place: int, size: int) -> None:
        """Read a range before it is written, so that it is cached in huge pages.

        Otherwise it would be cached in pages as small as an append, and gathering would take a
        third longer.
        """
        start = place - place % mmap.PAGESIZE
        with suppress(OSError):  # an older kernel, or no room, which the write reports
            self._content.madvise(_POPULATE_READ, start, place + size - start)

    def _write(self, data: bytes | memoryview, place: int) -> None:
        if self._failed:
            raise StorageFailed(f"a sync of {self._path} has failed; restart the service")
        left = memoryview(data).cast("B")
        try:
            while left:
                written = os.pwrite(self._file.fileno(), left, place)
                left, place = left[written:], place + written
        except OSError as error:
            raise StorageFailed(
                f"cannot write {self._path}: {error.strerror}; make room, then it goes on"
            ) from error

    def _to_disk(self) -> None:
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            self._failed = True
            raise StorageFailed(f"cannot sync {self._path}: {error.strerror}") from error

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
            raise _damaged(self._path, reason)
        self.publish(tail if sound == evicted else evicted, self.head)
        return whole - self.head

    def _first_unsound(self, tail: int, head: int) -> int:
        """First position in [tail, head) whose checksum does not match, or head."""
        for first in range(tail, head, _AT_ONCE):
            last = min(head, first + _AT_ONCE)
            for slot, part in self._layout.runs(first, last):
                count = part.stop - part.start
                held = slice(slot, slot + count)
                start: int = first + part.start
                unsound = self._checks[held] != _checksums(start, self.rows[held])
                if unsound.any():
                    return start + int(np.argmax(unsound))
        return head


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Offsets of the parts of a file."""

    row_size: int
    slots: int

    @property
    def row_bytes(self) -> int:
        return 4 * self.row_size

    @property
    def rows_at(self) -> int:
        return _PAGE * ceil((_CHECKS_AT + 4 * self.slots) / _PAGE)

    @property
    def size(self) -> int:
        return self.rows_at + self.slots * self.row_bytes

    def runs(self, first: int, last: int) -> Iterator[tuple[int, slice]]:
        """Split positions [first, last) into runs of slots: first slot and slice of the rows."""
        start = first
        while start < last:
            slot = start % self.slots
            stop = min(last, start + self.slots - slot)
            yield slot, slice(start - first, stop - first)
            start = stop


def _checksums(first: int, rows: FloatArray) -> NDArray[np.uint32]:
    """CRC-32C of each row, mixed with its position, shape (n,)."""
    sums = np.fromiter(map(google_crc32c.value, rows), dtype=np.uint32, count=len(rows))
    positions = np.arange(first, first + len(rows), dtype=np.uint64)
    return sums ^ (positions * _SPREAD >> np.uint64(32)).astype(np.uint32)


def _sealed(content: bytes) -> bytes:
    return content + _CRC.pack(google_crc32c.value(content))


def _opened(content: bytes) -> bytes | None:
    """Content passed to ``_sealed``, or None if it is damaged."""
    inner = content[: -_CRC.size]
    return inner if _sealed(inner) == content else None


def _read_header(path: Path, page: bytes) -> tuple[int, int, int]:
    mark, version = page[: len(_MARK)], page[len(_MARK) : len(_MARK) + 1]
    if mark == _MARK and version != _FORMAT:
        raise VersionMismatch(
            f"{path} has format {version.decode(errors='replace')}, this version of Fullrank reads "
            f"format {_FORMAT.decode()}; use the version that wrote it"
        )
    header = _opened(page[: _HEADER.size + _CRC.size])
    if header is None or mark != _MARK:
        raise _damaged(path, "its header is not that of a table")
    _, row_size, capacity, slots = _HEADER.unpack(header)
    return row_size, capacity, slots


def _read_cursor(path: Path, content: mmap.mmap) -> tuple[int, int, int, int]:
    """The newer of the intact cursors."""
    size = _CURSOR.size + _CRC.size
    contents = [_opened(content[place : place + size]) for place in _CURSORS_AT]
    whole = [_CURSOR.unpack(cursor) for cursor in contents if cursor is not None]
    if not whole:
        raise _damaged(path, "neither of its cursors is whole")
    return max(whole)


def _damaged(path: Path, reason: str) -> Corrupted:
    return Corrupted(f"{path} is damaged: {reason}; restore it from a copy, or remove it")
