"""Storage of the tables: memory, or files that outlive the process."""

import re
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fullrank.errors import ConfigError, InvalidContribution, NotFound
from fullrank.replay import Table

S = TypeVar("S", bound=np.generic)

NAME = re.compile(r"[\w-]{1,64}", re.ASCII)


class Store:
    """Tables by name.

    Args:
        directory: Where tables are mapped to files, so that a restarted service finds every
            acknowledged row again; None keeps them in memory. Files are sparse: pages take space
            as they are written. A crash of the machine itself may lose what it had not yet written
            back.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._tables: dict[str, Table] = {}

    def open(self, name: str, *, row_size: int, capacity: int) -> Table:
        """The table called ``name``, made if it does not exist.

        Raises:
            InvalidContribution: The name could not be that of a file.
            ConfigError: It exists with another row size or capacity, or there is no room for it.
        """
        if not NAME.fullmatch(name):
            raise InvalidContribution(f"table {name!r}: a name has letters, digits, - and _ alone")
        table = self._tables.get(name) or self._map(name, row_size=row_size, capacity=capacity)
        if (table.row_size, table.capacity) != (row_size, capacity):
            raise ConfigError(
                f"table {name!r} has row size {table.row_size} and capacity {table.capacity}, "
                f"not {row_size} and {capacity}; use another run directory"
            )
        self._tables[name] = table
        return table

    def get(self, name: str) -> Table:
        """The table called ``name``; ``NotFound`` if it was never opened."""
        try:
            return self._tables[name]
        except KeyError:
            raise NotFound(f"there is no table {name!r}; the controller opens it") from None

    def _map(self, name: str, *, row_size: int, capacity: int) -> Table:
        try:
            rows = self._array(f"{name}.rows", np.dtype(np.float32), (capacity, row_size))
            cursor = self._array(f"{name}.cursor", np.dtype(np.int64), (2,))
        except (OSError, MemoryError, OverflowError, ValueError) as error:
            raise ConfigError(
                f"there is no room for {capacity} rows of {row_size} float32 ({error}); lower "
                "replay.capacity"
            ) from None
        return Table(rows, cursor)

    def _array(self, file: str, dtype: np.dtype[S], shape: tuple[int, ...]) -> NDArray[S]:
        """A zeroed array, or what the file of an earlier process holds."""
        if self._directory is None:
            return np.zeros(shape, dtype)
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / file
        expected = int(np.prod(shape)) * dtype.itemsize
        if path.exists() and path.stat().st_size != expected:
            raise ConfigError(
                f"{path} has {path.stat().st_size} bytes, not the {expected} that this run needs; "
                "use another run directory"
            )
        return np.memmap(path, dtype, "r+" if path.exists() else "w+", shape=shape)
