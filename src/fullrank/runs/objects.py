"""Objects: named bytes outside the run directory, on another volume or in an object store."""

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Protocol, TypeVar

from fullrank.common.durable import rename, replace_bytes, sync_directory
from fullrank.common.errors import ConfigError, NotFound, StorageFailed
from fullrank.common.foreign import regular

SCRATCH = ".scratch"
"""Name under which a directory has what is being written; a controller that begins removes it."""


Placed = TypeVar("Placed")


class Objects(Protocol):
    """Named bytes; a name has parts between slashes.

    Every method raises ``StorageFailed`` if the store cannot be reached or does not take it. What
    one process has written every other one sees from then on.
    """

    def put(self, name: str, content: bytes) -> None:
        """Write an object; durable when this returns."""

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of that name; returns whether it was written."""

    def get(self, name: str) -> bytes:
        """Content of an object; raises ``NotFound`` if there is none."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones do not matter."""


def open_objects(place: str) -> Objects:
    """Objects at a directory, or at a URL such as ``s3://bucket/prefix``.

    Raises:
        ConfigError: There is no such kind of store, or its package is not installed.
    """
    if "://" not in place:
        if not (directory := Path(place)).is_absolute():
            raise ConfigError(
                f"store.url = {place!r} is another directory in each working directory; use "
                f"{str(directory.absolute())!r}"
            )
        return DirectoryObjects(directory)
    if re.search(r"[@?#]", place):
        raise ConfigError(
            "store.url is a scheme, a bucket and a prefix, as s3://bucket/prefix; credentials "
            "stand in the environment alone"
        )
    try:
        from fullrank.runs.object_store import StoredObjects
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{place} needs the package {error.name!r}: pip install 'fullrank[s3]'"
        ) from None
    return StoredObjects(place)


class DirectoryObjects:
    """Objects as files below a directory, as on another volume."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self._write(name, content, rename)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of that name."""
        return self._write(name, content, _link)

    def get(self, name: str) -> bytes:
        """Content of an object."""
        with self._reported(name):
            try:
                with open(self._directory / name, "rb", opener=regular) as file:
                    return file.read()
            except FileNotFoundError:
                raise NotFound(f"{self._directory} holds no {name}") from None

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, and directories that become empty; of directories ``SCRATCH`` alone."""
        for name in names:
            path = self._directory / name
            with self._reported(name):
                if name == SCRATCH:
                    shutil.rmtree(path, ignore_errors=True)  # another one may write there still
                else:
                    path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()

    def _write(self, name: str, content: bytes, place: Callable[[Path, Path], Placed]) -> Placed:
        """Write under a name that no other writer has, and move it from there to its own."""
        scratch, path = self._directory / SCRATCH / token_hex(8), self._directory / name

        def write() -> Placed:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(scratch, content)
            return place(scratch, path)

        with self._reported(name):
            try:
                return write()
            except FileNotFoundError:  # swept by a controller that began in between
                return write()

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise StorageFailed(f"{self._directory}: {name}: {reason}") from error


def _link(scratch: Path, path: Path) -> bool:
    """Give a file its name unless there is one of that name; False then."""
    try:
        os.link(scratch, path)
    except FileExistsError:
        return False
    finally:
        scratch.unlink(missing_ok=True)
    sync_directory(path.parent)
    return True
