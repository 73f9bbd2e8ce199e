"""Storage of the tables: memory, or files that outlive the process."""

import re
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from fullrank.errors import ConfigError, InvalidContribution, NotFound
from fullrank.replay import Table

S = TypeVar("S", bound=np.generic)

ROWS, CURSOR = ".rows.npy", ".cursor.npy"
"""Endings of a table's two files; NumPy's headers hold its row size and capacity."""
NAME = re.compile(r"[\w-]{1,64}", re.ASCII)


class Store:
    """Tables by name.

    Args:
        directory: Where tables are mapped to files, so that a restarted service serves every
            acknowledged row at once, to callers that need not notice; None keeps them in memory.
            Files are sparse: pages take space as they are written. A crash of the machine itself
            may lose what it had not yet written back.

    Raises:
        ConfigError: A file in the directory is damaged.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self.tables: dict[str, Table] = {}
        for path in sorted(directory.glob(f"*{ROWS}")) if directory is not None else ():
            name = path.name.removesuffix(ROWS)
            self.tables[name] = self._reopened(name)

    def open(self, name: str, *, row_size: int, capacity: int) -> Table:
        """The table called ``name``, made if it does not exist.

        Raises:
            InvalidContribution: The name could not be that of a file.
            ConfigError: It exists with another row size or capacity, or there is no room for it.
        """
        if not NAME.fullmatch(name):
            raise InvalidContribution(f"table {name!r}: a name has letters, digits, - and _ alone")
        table = self.tables.get(name) or self._map(name, row_size=row_size, capacity=capacity)
        if (table.row_size, table.capacity) != (row_size, capacity):
            raise ConfigError(
                f"table {name!r} has row size {table.row_size} and capacity {table.capacity}, "
                f"not {row_size} and {capacity}; use another run directory"
            )
        self.tables[name] = table
        return table

    def get(self, name: str) -> Table:
        """The table called ``name``; ``NotFound`` if it was never opened."""
        try:
            return self.tables[name]
        except KeyError:
            raise NotFound(f"there is no table {name!r}; the controller opens it") from None

    def _reopened(self, name: str) -> Table:
        assert self._directory is not None
        try:
            rows = open_memmap(self._directory / f"{name}{ROWS}", mode="r+")
            cursor = open_memmap(self._directory / f"{name}{CURSOR}", mode="r+")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"table {name!r} in {self._directory} is damaged ({error}); restore or remove it"
            ) from None
        return Table(rows, cursor)

    def _map(self, name: str, *, row_size: int, capacity: int) -> Table:
        try:
            cursor = self._array(f"{name}{CURSOR}", np.dtype(np.int64), (2,))
            rows = self._array(f"{name}{ROWS}", np.dtype(np.float32), (capacity, row_size))
        except (OSError, MemoryError, OverflowError, ValueError) as error:
            raise ConfigError(
                f"there is no room for {capacity} rows of {row_size} float32 ({error}); lower "
                "replay.capacity"
            ) from None
        return Table(rows, cursor)

    def _array(self, file: str, dtype: np.dtype[S], shape: tuple[int, ...]) -> NDArray[S]:
        """A zeroed array."""
        if self._directory is None:
            return np.zeros(shape, dtype)
        self._directory.mkdir(parents=True, exist_ok=True)
        return open_memmap(self._directory / file, mode="w+", dtype=dtype, shape=shape)
