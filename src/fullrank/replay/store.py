"""Storage of the tables of many runs: memory, or files that outlive the process."""

import re
from pathlib import Path
from typing import NamedTuple

from fullrank.common.durable import rename
from fullrank.common.errors import (
    ConfigError,
    FullrankError,
    InvalidContribution,
    NotFound,
    StorageFailed,
)
from fullrank.replay.file_format import FileLayout
from fullrank.replay.limits import MOST_TABLES, rows_per_append
from fullrank.replay.ring_file import RingFile
from fullrank.replay.storage import PASSING, MemoryStorage, refused
from fullrank.replay.table import TABLE, Table

SUFFIX = ".table"
NAME = re.compile(r"[\w-]{1,64}", re.ASCII)


class Location(NamedTuple):
    """File of a table."""

    path: str
    """Absolute path of the file."""
    instance: bytes
    """Id that the file holds since this process opened it."""


def table_key(run: str, table: str) -> str:
    """Return the key of a run's table: its file's path below the directory, without the suffix.

    Raises:
        InvalidContribution: A name is not valid for a file.
    """
    for kind, name in (("run", run), ("table", table)):
        if not NAME.fullmatch(name):
            raise InvalidContribution(f"{kind} {name!r}: a name has letters, digits, - and _ only")
    return f"{run}/{table}"


def table_file(directory: Path, run: str) -> Path:
    """Return the file of a run's transitions.

    Raises:
        InvalidContribution: The run's name is not valid for a folder.
    """
    return directory / f"{table_key(run, TABLE)}{SUFFIX}"


class Store:
    """Tables of many runs, by key.

    Args:
        directory: Directory with a folder for each run and in it a file for each table, so that a
            restarted service serves every acknowledged row at once; None keeps the tables in
            memory. Files are sparse: they take space as they are written.
        sync: Whether rows are on disk before they are acknowledged. Otherwise a crash of the
            machine may lose rows that it had not yet written back.
        most_bytes: Limit on the bytes of all tables when full, beyond which no further one is made;
            None: there is no limit.

    Attributes:
        tables: All tables by key.
        lost: Rows that each table has lost in a crash of the machine.
        unusable: Why a table cannot be read, by key; it ends no run but its own.

    Raises:
        ConfigError: ``sync`` without a directory.
    """

    def __init__(
        self, directory: Path | None, *, sync: bool, most_bytes: int | None = None
    ) -> None:
        if sync and directory is None:
            raise ConfigError('replay.acknowledge = "fsync" needs files: give --run-dir')
        self._directory, self._sync, self._most_bytes = directory, sync, most_bytes
        self.tables: dict[str, Table] = {}
        self._locations: dict[str, Location] = {}
        self.lost: dict[str, int] = {}
        self.unusable: dict[str, FullrankError] = {}
        for path in sorted(directory.glob(f"*/*{SUFFIX}")) if directory is not None else ():
            key = f"{path.parent.name}/{path.stem}"
            try:
                self.tables[key] = self._reopened(key, path)
            except StorageFailed:
                continue  # it is opened again when it is asked for
            except FullrankError as error:
                self.unusable[key] = error

    def open(self, key: str, *, row_size: int, capacity: int) -> Table:
        """Open a table, which is made if it does not exist; one of more capacity keeps it.

        Raises:
            ConfigError: It exists with another row size or less capacity, or there is no room.
            FullrankError: Its file cannot be read.
        """
        table = self._held(key) or self._made(key, row_size=row_size, capacity=capacity)
        if table.row_size != row_size or table.capacity < capacity:
            lower = "lower checkpoint.every, audit.every or collect.window to the run's first value"
            remedy = lower if table.row_size == row_size else "use another run directory"
            raise ConfigError(
                f"table {key!r} has row size {table.row_size} and capacity {table.capacity}, "
                f"not {row_size} and {capacity}; {remedy}"
            )
        self.tables[key] = table
        return table

    def get(self, key: str) -> Table:
        """Return a table.

        Raises:
            NotFound: It was never opened.
            FullrankError: Its file cannot be read.
        """
        if key in self.unusable:
            raise self.unusable[key]
        try:
            return self.tables[key]
        except KeyError:
            raise NotFound(f"there is no table {key!r}; the controller opens it") from None

    def location(self, key: str) -> Location:
        """Return the file of a table; an empty path if it is in memory. Raises like ``get``."""
        self.get(key)
        return self._locations.get(key, Location("", b""))

    def _held(self, key: str) -> Table | None:
        """The table if it exists; its folder may have been put there meanwhile."""
        if key in self.tables or key in self.unusable:
            return self.get(key)
        if self._directory is None:
            return None
        path = self._directory / f"{key}{SUFFIX}"
        return self._reopened(key, path) if path.exists() else None

    def _reopened(self, key: str, path: Path) -> Table:
        try:
            storage = RingFile(path, sync=self._sync)
        except OSError as error:
            raise refused("open", path, error) from None
        if storage.dropped:
            self.lost[key] = storage.dropped
        return self._table_of(key, storage)

    def _table_of(self, key: str, storage: RingFile) -> Table:
        self._locations[key] = Location(str(storage.path.resolve()), storage.instance)
        return Table(storage, capacity=storage.capacity)

    def _made(self, key: str, *, row_size: int, capacity: int) -> Table:
        self._check_room(key, row_size=row_size, capacity=capacity)
        path = (self._directory or Path()) / f"{key}{SUFFIX}"
        try:
            if self._directory is None:
                return Table(MemoryStorage(capacity, row_size), capacity=capacity)
            storage = RingFile.create(path, row_size=row_size, capacity=capacity, sync=self._sync)
        except (OSError, MemoryError, OverflowError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in PASSING:
                raise refused("make", path, error) from error
            raise ConfigError(
                f"there is no room for {capacity} rows of {row_size} float32 ({error}); lower "
                "replay.capacity, checkpoint.every or audit.every"
            ) from None
        return self._table_of(key, storage)

    def _check_room(self, key: str, *, row_size: int, capacity: int) -> None:
        """Refuse, with ``ConfigError``, a table beyond the bounds of all tables together."""
        count = len(self.tables)
        used = sum(_bytes_of(table.row_size, table.capacity) for table in self.tables.values())
        wanted = _bytes_of(row_size, capacity)
        held = f"{count} tables of {len({key.split('/')[0] for key in self.tables})} runs"
        remedy = "remove the folders of runs that are over while replay is stopped"
        if self._most_bytes is not None and used + wanted > self._most_bytes:
            raise ConfigError(
                f"there is no room for table {key!r} of {wanted} bytes: {held} take {used} bytes "
                f"of replay.total_bytes = {self._most_bytes}; lower replay.capacity, "
                "replay.capacity_bytes, checkpoint.every or audit.every of this run, raise "
                f"replay.total_bytes, or {remedy}"
            )
        if count >= MOST_TABLES:
            raise ConfigError(
                f"there is no room for table {key!r}: the service holds {held}, {MOST_TABLES} at "
                f"most; {remedy}, or start another replay service"
            )


def _bytes_of(row_size: int, capacity: int) -> int:
    """Bytes of the file of a full table."""
    return FileLayout(row_size=row_size, slots=capacity + rows_per_append(4 * row_size)).size


def rename_tables(directory: Path, copied: str, run: str) -> None:
    """Give the copied tables of a run to the run that goes on with them."""
    if NAME.fullmatch(copied) and (directory / copied).is_dir():
        rename(directory / copied, directory / run)
