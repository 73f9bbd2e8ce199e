"""Format of a table's file: a header, two cursors, a checksum for each row, and the rows.

The header is followed by an instance id, which the service draws anew whenever it opens the file,
so that another process can prove that it has opened the same file.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from fullrank.common.errors import Corrupted, VersionMismatch
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.limits import POSITIONS

PAGE = 4096
HEADER = struct.Struct("<8sQQQ")
"""Mark, entries of a row, capacity, slots."""
MARK, FORMAT = b"FRTABLE", b"1"
"""First bytes of a table's file, and the version of its format in the byte after them."""
CURSOR = struct.Struct("<QQQQ")
"""Number of the cursor, tail, head, and the head that is on disk."""
CRC = struct.Struct("<I")
"""CRC-32C of a header or cursor, behind it."""
CURSORS_AT = (PAGE, PAGE + 512)
"""Offsets of the cursors, in two sectors: a crash tears one of them at most."""
CHECKS_AT = 2 * PAGE
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 / golden ratio: spreads neighbouring positions over all bits of a checksum."""
INSTANCE_AT = PAGE // 2
"""Offset of the instance id."""
INSTANCE_BYTES = 16
"""Length of an instance id, too long to guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """Offsets of the parts of a file."""

    row_size: int
    slots: int

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row."""
        return 4 * self.row_size

    @property
    def rows_at(self) -> int:
        """Return the offset of the rows."""
        return PAGE * ceil((CHECKS_AT + 4 * self.slots) / PAGE)

    @property
    def size(self) -> int:
        """Return the bytes of the file."""
        return self.rows_at + self.slots * self.row_bytes

    def runs(self, first: int, last: int) -> Iterator[tuple[int, slice]]:
        """Split positions [first, last) into runs of slots: first slot and slice of the rows."""
        start = first
        while start < last:
            slot = start % self.slots
            stop = min(last, start + self.slots - slot)
            yield slot, slice(start - first, stop - first)
            start = stop


class Mapping:
    """A table's file in memory, read only: slots that a process may be filling.

    Args:
        path: A table's file, which its header proves.
        fileno: Its descriptor, open for reading.

    Attributes:
        content: The whole file.
        capacity: Most readable rows.
        layout: Offsets of the parts.
        checks: Checksum of each slot's row, shape (slots,).
        rows: Shape (slots, row_size) float32.

    Raises:
        Corrupted: The file is damaged.
        VersionMismatch: The file has another format.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path, fileno: int) -> None:
        self._path = path
        row_size, self.capacity, slots = read_header(path, os.pread(fileno, PAGE, 0))
        self.layout = layout = FileLayout(row_size=row_size, slots=slots)
        if (size := os.fstat(fileno).st_size) != layout.size:
            raise damaged(path, f"it has {size} bytes instead of {layout.size}")
        self.content = content = mmap.mmap(fileno, layout.size, access=mmap.ACCESS_READ)
        with suppress(OSError, AttributeError):  # a kernel, or a system, without huge pages
            content.madvise(mmap.MADV_HUGEPAGE)
        self.checks = np.frombuffer(content, "<u4", slots, CHECKS_AT)
        rows = np.frombuffer(content, "<f4", slots * row_size, layout.rows_at)
        self.rows = rows.reshape(-1, row_size)

    def verify(self, positions: IntArray, rows: FloatArray) -> None:
        """Check rows that were read at some positions; those evicted meanwhile do not count.

        Raises:
            Corrupted: A row is not what was stored.
        """
        unsound = positions[self.checks[positions % len(self.checks)] != checksums(positions, rows)]
        if len(unsound) and len(lost := unsound[unsound >= self.tail]):
            raise damaged(self._path, f"the row at position {lost.min()} is not what was stored")

    @property
    def instance(self) -> bytes:
        """Return the id drawn by the service that has the file open."""
        return self.content[INSTANCE_AT : INSTANCE_AT + INSTANCE_BYTES]

    @property
    def tail(self) -> int:
        """Return the oldest readable position, read anew at each access."""
        return read_cursor(self._path, self.content)[1]

    @property
    def head(self) -> int:
        """Return one past the newest readable position, read anew at each access."""
        return read_cursor(self._path, self.content)[2]


def checksums(positions: IntArray, rows: FloatArray) -> NDArray[np.uint32]:
    """CRC-32C of each row, mixed with its position, shape (n,)."""
    sums = np.fromiter(map(google_crc32c.value, rows), dtype=np.uint32, count=len(rows))
    return sums ^ (positions.astype(np.uint64) * _SPREAD >> np.uint64(32)).astype(np.uint32)


def sealed(content: bytes) -> bytes:
    """Append a checksum."""
    return content + CRC.pack(google_crc32c.value(content))


@lru_cache(maxsize=8)
def _opened(content: bytes) -> bytes | None:
    """Content passed to ``sealed``, or None if it is damaged.

    Cursors are read several times for each time that they change.
    """
    inner = content[: -CRC.size]
    return inner if sealed(inner) == content else None


def read_header(path: Path, page: bytes) -> tuple[int, int, int]:
    """Return row size, capacity and slots; raises like ``Mapping``."""
    prefix = MARK + FORMAT
    mark, version = page[: len(MARK)], page[len(MARK) : len(prefix)]
    header = _opened(prefix + page[len(prefix) : HEADER.size + CRC.size])
    if mark == MARK and version != FORMAT and header is None:  # else only the version is damaged
        raise VersionMismatch(
            f"{path} has format {version.decode(errors='replace')}, this version of Fullrank reads "
            f"format {FORMAT.decode()}; use the version that wrote it"
        )
    if header is None or mark + version != prefix:
        raise damaged(path, "its header is not that of a table")
    _, row_size, capacity, slots = HEADER.unpack(header)
    if not (row_size and 0 < capacity < slots):
        raise damaged(path, f"{slots} slots of {row_size} entries hold no {capacity} rows")
    return row_size, capacity, slots


def read_cursor(path: Path, content: mmap.mmap) -> tuple[int, int, int, int]:
    """The newer of the intact cursors."""
    size = CURSOR.size + CRC.size
    contents = [_opened(content[place : place + size]) for place in CURSORS_AT]
    whole = [CURSOR.unpack(cursor) for cursor in contents if cursor is not None]
    if not whole:
        raise damaged(path, "neither of its cursors is whole")
    _, tail, head, _ = newest = max(whole)
    if not tail <= head < POSITIONS:
        raise damaged(path, f"its cursor has tail {tail} and head {head}")
    return newest


def damaged(path: Path, reason: str) -> Corrupted:
    """Return the error for a damaged file."""
    return Corrupted(f"{path} is damaged: {reason}; restore it from a copy, or remove it")
