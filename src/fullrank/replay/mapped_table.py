"""A table that another process of this host writes, gathered from its mapped file.

An append never overwrites readable rows, and the slot of a row is not reused before a published
cursor has evicted it. A minibatch is therefore intact if its range is still readable after its rows
were gathered; each row is held to its checksum besides.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fullrank.common.errors import Corrupted, NotFound, OutOfRange, VersionMismatch
from fullrank.common.foreign import brief, regular
from fullrank.common.types import FloatArray
from fullrank.replay.file_format import Mapping
from fullrank.replay.items import Gathered, Items, spread
from fullrank.replay.ring_file import RingFile
from fullrank.replay.samplers import Sample
from fullrank.replay.staging import rows_digest
from fullrank.replay.table import TableReader

_AT_ONCE = 2**16
"""Rows checked at a time."""


class TableFile:
    """Minibatches from a table's file, which a service may be writing.

    Args:
        path: Path of the file.

    Attributes:
        instance: Id of the file's opening when it was mapped.

    Raises:
        Corrupted: The file is damaged.
        VersionMismatch: The file has another format.
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        with open(path, "rb", buffering=0, opener=regular) as file:
            self._mapping = Mapping(path, file.fileno())
        self.instance, self._path = self._mapping.instance, path
        self._reader = TableReader(self._mapping, capacity=self._mapping.capacity)

    @property
    def row_size(self) -> int:
        """Return the entries of a row."""
        return self._reader.row_size

    @property
    def capacity(self) -> int:
        """Return the most readable rows."""
        return self._reader.capacity

    @property
    def tail(self) -> int:
        """Return the oldest readable position."""
        return self._mapping.tail

    @property
    def head(self) -> int:
        """Return one past the newest readable position."""
        return self._mapping.head

    def gather(self, sample: Sample, items: Items = None) -> Gathered:
        """Return the rows of these items.

        Raises:
            OutOfRange: A row is not written yet or was evicted meanwhile, or the service has opened
                the file anew.
            Corrupted: A row differs from the stored one.
            InvalidContribution: The rows are not those of the sample.
        """
        with self._of_one_opening():
            runs = self._reader.runs(sample)
            rows = self._reader.gather(runs.positions(items))
        if self.tail > sample.tail:
            raise OutOfRange(f"position {sample.tail} was evicted: the tail is {self.tail}")
        if items is None:
            return Gathered(rows, rows.nbytes)
        return spread(rows, runs.lengths, items, length_column=sample.draw.length)

    def rows(self, first: int, last: int) -> tuple[int, FloatArray]:
        """Return the rows of [first, last) that are readable still, and the first of them.

        Raises:
            OutOfRange: The service has opened the file anew meanwhile.
            Corrupted: A row differs from the stored one.
        """
        with self._of_one_opening():
            rows = self._reader.gather(np.arange(first, last))
        kept = rows[max(0, self.tail - first) :]
        return last - len(kept), kept

    def digest(self, first: int, last: int) -> str | None:
        """Return the digest of the rows [first, last); None if one is unreadable or damaged."""
        if not self.tail <= first <= last <= self.head:
            return None
        try:
            rows = self._reader.gather(np.arange(first, last))
        except Corrupted:
            return None
        return rows_digest(rows).hex() if self.tail <= first else None

    def check(self) -> None:
        """Check every readable row; rows that are evicted meanwhile do not count.

        Raises:
            OutOfRange: The service has opened the file anew meanwhile.
            Corrupted: A row differs from the stored one.
        """
        head = self.head
        for first in range(self.tail, head, _AT_ONCE):
            self.rows(first, min(head, first + _AT_ONCE))

    @contextmanager
    def _of_one_opening(self) -> Iterator[None]:
        """Raise ``OutOfRange`` if the service has opened the file anew while rows were read."""
        try:
            yield
        finally:
            if self._mapping.instance != self.instance:
                raise OutOfRange(f"{self._path} was opened anew by its service")


class MappedTable:
    """Minibatches from the table's file of a replay service.

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
            self._file = TableFile(path)
        except (OSError, ValueError, Corrupted, VersionMismatch) as error:  # no path
            raise NotFound(f"the table cannot be mapped: {brief(str(error), limit=200)}") from None
        if self._file.instance != instance:
            raise NotFound(f"{path} is not the file that the replay service has opened")

    def gather(self, sample: Sample, items: Items = None) -> Gathered | None:
        """Return the rows of these items.

        None if a row is not written yet, was evicted meanwhile or is damaged, or if the service has
        opened the file anew.
        """
        try:
            return self._file.gather(sample, items)
        except (Corrupted, OutOfRange):
            return None


COPIED = 4096
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
    head, longest = source.head, min(COPIED, len(copy.rows) - copy.capacity)
    while first < head:
        last = min(first + longest, head)
        first, rows = source.rows(first, last)
        tail = max(tail, source.tail)
        if len(rows):
            copy.write(first, rows)
            copy.publish(min(tail, last), last)
        first = max(last, tail)
