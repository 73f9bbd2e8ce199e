"""The copy of a table that a service may be writing."""

from pathlib import Path

from fullrank.replay.mapped_table import TableFile
from fullrank.replay.ring_file import RingFile

AT_ONCE = 4096
"""Rows that are copied together."""


def copy_table(source: TableFile, path: Path) -> None:
    """Copy a table that a service may be writing; rows that are evicted meanwhile are left out.

    Args:
        source: The table.
        path: The new file, with the same positions and capacity.

    Raises:
        Corrupted: A row differs from the stored one.
        OutOfRange: The service has opened the file anew meanwhile.
    """
    copy = RingFile.create(path, row_size=source.row_size, capacity=source.capacity, sync=False)
    first = tail = source.tail
    head, longest = source.head, min(AT_ONCE, len(copy.rows) - copy.capacity)
    while first < head:
        last = min(first + longest, head)
        first, rows = source.rows(first, last)
        tail = max(tail, source.tail)
        if len(rows):
            copy.write(first, rows)
            copy.publish(min(tail, last), last)
        first = max(last, tail)
