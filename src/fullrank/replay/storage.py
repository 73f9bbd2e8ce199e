"""Storage of a table: slots for a range of positions, in memory or in a file, and its errors."""

import errno
from pathlib import Path
from typing import Protocol

import numpy as np

from fullrank.common.errors import ConfigError, FullrankError, StorageFailed
from fullrank.common.types import FloatArray, IntArray


class Slots(Protocol):
    """Slots of packed rows; position p lies in slot p mod (number of slots)."""

    @property
    def rows(self) -> FloatArray:
        """Shape (slots, row_size) float32."""

    @property
    def tail(self) -> int:
        """Oldest readable position."""

    @property
    def head(self) -> int:
        """One past the newest readable position."""

    def verify(self, positions: IntArray, rows: FloatArray) -> None:
        """Raise ``Corrupted`` if rows that were read at some positions are not those stored."""


class Storage(Slots, Protocol):
    """Slots that this process fills."""

    def write(self, first: int, rows: FloatArray) -> None:
        """Fill the slots of positions from ``first`` on; readable rows do not change."""

    def publish(self, tail: int, head: int) -> None:
        """Make the positions [tail, head) readable, as durably as this storage can."""


class MemoryStorage:
    """Slots in the memory of the process.

    Args:
        slots: Number of slots.
        row_size: Entries of a row.
    """

    def __init__(self, slots: int, row_size: int) -> None:
        self.rows: FloatArray = np.zeros((slots, row_size), dtype=np.float32)
        self.tail = self.head = 0

    def verify(self, positions: IntArray, rows: FloatArray) -> None:
        """Accept all rows: this memory has no checksums."""

    def write(self, first: int, rows: FloatArray) -> None:
        """Fill the slots of positions from ``first`` on."""
        slots, start = len(self.rows), first % len(self.rows)
        end = min(start + len(rows), slots)
        self.rows[start:end], self.rows[: len(rows) - (end - start)] = np.split(rows, [end - start])

    def publish(self, tail: int, head: int) -> None:
        """Make the positions [tail, head) readable."""
        self.tail, self.head = tail, head


PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Errors that end once there is room, or a descriptor, again."""


def refused(doing: str, path: Path, error: OSError) -> FullrankError:
    """``StorageFailed``, after which callers try again, or ``ConfigError``."""
    said = f"cannot {doing} {path}: {error.strerror or error}"
    if error.errno in PASSING:
        return StorageFailed(f"{said}; make room, and it continues")
    return ConfigError(f"{said}; mend that, and start replay again")
