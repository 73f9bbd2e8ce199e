"""Storage of the tables: memory, or files that outlive the process."""

import re
from pathlib import Path
from typing import NamedTuple

from fullrank.common.errors import ConfigError, InvalidContribution, NotFound
from fullrank.replay.ring_file import RingFile
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table

SUFFIX = ".table"
NAME = re.compile(r"[\w-]{1,64}", re.ASCII)


class Location(NamedTuple):
    """File of a table."""

    path: str
    """Absolute path of the file."""
    instance: bytes
    """Id that the file holds since this process opened it."""


class Store:
    """Tables by name.

    Args:
        directory: Directory with a file for each table, so that a restarted service serves every
            acknowledged row at once; None keeps the tables in memory. Files are sparse: they take
            space as they are written.
        sync: Whether rows are on disk before they are acknowledged. Otherwise a crash of the
            machine may lose rows that it had not yet written back.

    Attributes:
        tables: All tables by name.
        lost: Rows that each table has lost in a crash of the machine.

    Raises:
        Corrupted: A file in the directory is damaged.
        ConfigError: ``sync`` without a directory.
    """

    def __init__(self, directory: Path | None, *, sync: bool) -> None:
        if sync and directory is None:
            raise ConfigError('replay.acknowledge = "fsync" needs files: give --run-dir')
        self._directory, self._sync = directory, sync
        self.tables: dict[str, Table] = {}
        self._locations: dict[str, Location] = {}
        self.lost: dict[str, int] = {}
        for path in sorted(directory.glob(f"*{SUFFIX}")) if directory is not None else ():
            self.tables[path.stem] = self._reopened(path)

    def open(self, name: str, *, row_size: int, capacity: int) -> Table:
        """The table called ``name``, created if it does not exist.

        Raises:
            InvalidContribution: The name is not valid for a file.
            ConfigError: It exists with another row size or capacity, or there is no room for it.
        """
        if not NAME.fullmatch(name):
            raise InvalidContribution(f"table {name!r}: a name has letters, digits, - and _ only")
        table = self.tables.get(name) or self._made(name, row_size=row_size, capacity=capacity)
        if (table.row_size, table.capacity) != (row_size, capacity):
            raise ConfigError(
                f"table {name!r} has row size {table.row_size} and capacity {table.capacity}, "
                f"not {row_size} and {capacity}; convert a run of an earlier version by "
                "`fullrank migrate RUN`, or use another run directory"
            )
        self.tables[name] = table
        return table

    def get(self, name: str) -> Table:
        """The table called ``name``; ``NotFound`` if it was never opened."""
        try:
            return self.tables[name]
        except KeyError:
            raise NotFound(f"there is no table {name!r}; the controller opens it") from None

    def location(self, name: str) -> Location:
        """Return the file of the table called ``name``; an empty path if it is in memory.

        Raises:
            NotFound: The table was never opened.
        """
        self.get(name)
        return self._locations.get(name, Location("", b""))

    def _reopened(self, path: Path) -> Table:
        storage = RingFile(path, sync=self._sync)
        if storage.dropped:
            self.lost[path.stem] = storage.dropped
        return self._table_of(storage)

    def _table_of(self, storage: RingFile) -> Table:
        self._locations[storage.path.stem] = Location(str(storage.path.resolve()), storage.instance)
        return Table(storage, capacity=storage.capacity)

    def _made(self, name: str, *, row_size: int, capacity: int) -> Table:
        try:
            if self._directory is None:
                return Table(MemoryStorage(capacity, row_size), capacity=capacity)
            path = self._directory / f"{name}{SUFFIX}"
            storage = RingFile.create(path, row_size=row_size, capacity=capacity, sync=self._sync)
        except (OSError, MemoryError, OverflowError, ValueError) as error:
            raise ConfigError(
                f"there is no room for {capacity} rows of {row_size} float32 ({error}); lower "
                "replay.capacity"
            ) from None
        return self._table_of(storage)
