"""A table that another process of this host writes, gathered from its mapped file.

An append never overwrites readable rows, and the slot of a row is not reused before a published
cursor has evicted it. A minibatch is therefore intact if its range is still readable after its rows
were gathered; each row is held to its checksum besides.
"""

import os
import stat
from pathlib import Path

import numpy as np

from fullrank.common.errors import Corrupted, NotFound, OutOfRange, VersionMismatch
from fullrank.replay.file_format import Mapping, checksums, read_cursor
from fullrank.replay.items import Gathered, Items, spread
from fullrank.replay.samplers import Sample
from fullrank.replay.table_reader import TableReader


class MappedTable:
    """Minibatches from a table's file.

    Args:
        path: Path of the file in the writing process.
        instance: Id of the file's opening, as the writer reports it.

    Attributes:
        instance: As given.

    Raises:
        NotFound: This process cannot read the file, or finds another one at the path.
    """

    def __init__(self, path: Path, instance: bytes) -> None:
        self.instance = instance
        if path == Path():
            raise NotFound("the table is in the memory of the replay service")
        try:
            with open(path, "rb", buffering=0, opener=_regular) as file:
                mapping = Mapping(path, file.fileno())
        except (OSError, Corrupted, VersionMismatch) as error:
            raise NotFound(f"the table cannot be mapped: {error}") from None
        if mapping.instance != instance:
            raise NotFound(f"{path} is not the file that the replay service has opened")
        self._checks, self._slots = mapping.checks, _MappedSlots(path, mapping)
        self._reader = TableReader(self._slots, capacity=mapping.capacity)

    def gather(self, sample: Sample, items: Items = None) -> Gathered | None:
        """Return the rows of these items.

        None if a row is not written yet, was evicted meanwhile or is damaged, or if the service has
        opened the file anew.
        """
        try:
            runs = self._reader.runs(sample)
            positions = runs.positions(items)
            rows = self._reader.gather(positions)
            checks = self._checks[positions % len(self._checks)]
            intact = np.array_equal(checks, checksums(positions, rows))
            opened = self._slots.instance == self.instance
            if not (intact and opened) or self._slots.tail > sample.tail:
                return None
        except (Corrupted, OutOfRange):
            return None
        if items is None:
            return Gathered(rows, rows.nbytes)
        return spread(rows, runs.lengths, items, length_column=sample.length_column)


def _regular(path: str, flags: int) -> int:
    """Open a regular file; anything else, at the path that another process names, might block.

    Raises:
        OSError: It cannot be opened, or is of another kind.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return descriptor


class _MappedSlots:
    """Slots that another process fills; ``tail`` and ``head`` are read anew at each access."""

    def __init__(self, path: Path, mapping: Mapping) -> None:
        self._path, self._mapping, self.rows = path, mapping, mapping.rows

    @property
    def instance(self) -> bytes:
        return self._mapping.instance

    @property
    def tail(self) -> int:
        return read_cursor(self._path, self._mapping.content)[1]

    @property
    def head(self) -> int:
        return read_cursor(self._path, self._mapping.content)[2]
