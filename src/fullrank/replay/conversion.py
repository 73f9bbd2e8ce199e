"""A table's file of an earlier version, written anew with the rows of this one."""

from pathlib import Path

import numpy as np

from fullrank.common.durable import rename
from fullrank.common.types import IntArray
from fullrank.replay.layout import Layout
from fullrank.replay.mapped_table import TableFile
from fullrank.replay.ring_file import RingFile

AT_ONCE = 4096
"""Rows that are converted together."""


def kept_columns(layout: Layout, *, row_size: int) -> IntArray | None:
    """Columns of a stored row that rows of a layout hold; None if it is a row of something else.

    Rows held whole observations before entries that are always zero were left out (ADR 48).
    """
    if row_size == layout.row_size:
        return np.arange(row_size)
    whole = Layout(
        observation_sizes=layout.observation_sizes,
        action_sizes=layout.action_sizes,
        masked=layout.masked,
    )
    if row_size != whole.row_size:
        return None
    columns = np.arange(row_size)
    kept = np.ones(row_size, np.bool_)
    for part in (whole.observation, whole.next_observation):
        kept[part] = np.isin(columns[part] - part.start, layout.live)
    return np.flatnonzero(kept)


def convert(path: Path, columns: IntArray, *, capacity: int) -> None:
    """Replace a table's file by one with some columns of its rows and another capacity.

    Positions stay. A crash leaves the old file.

    Args:
        path: The file, which no service has open.
        columns: Columns to keep, ascending.
        capacity: Most readable rows.
    """
    fresh = path.with_name(f".{path.name}.new")
    old = RingFile(path, sync=True)
    new = RingFile.create(fresh, row_size=len(columns), capacity=capacity, sync=True)
    slots, longest = len(old.rows), min(AT_ONCE, len(new.rows) - capacity)
    tail = max(old.tail, old.head - capacity)
    for first in range(tail, old.head, longest):
        positions = np.arange(first, min(first + longest, old.head))
        new.write(first, np.ascontiguousarray(old.rows[positions % slots][:, columns]))
        new.publish(tail, int(positions[-1]) + 1)
    rename(fresh, path)


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
