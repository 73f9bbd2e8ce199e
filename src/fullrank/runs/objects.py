"""Objects: named bytes outside the run directory, on another volume or in an object store."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from fullrank.common.durable import rename, replace_bytes, sync_directory
from fullrank.common.errors import ConfigError, NotFound, StorageFailed
from fullrank.common.foreign import regular


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
        return DirectoryObjects(Path(place))
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
        path = self._directory / name
        try:
            rename(self._written(path, content), path)
        except OSError as error:
            raise self._failed(name, error) from error

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of that name."""
        path = self._directory / name
        try:
            scratch = self._written(path, content)
            try:
                os.link(scratch, path)
            except FileExistsError:
                return False
            finally:
                scratch.unlink()
            sync_directory(path.parent)
        except OSError as error:
            raise self._failed(name, error) from error
        return True

    def get(self, name: str) -> bytes:
        """Content of an object."""
        try:
            with open(self._directory / name, "rb", opener=regular) as file:
                return file.read()
        except FileNotFoundError:
            raise NotFound(f"{self._directory} holds no {name}") from None
        except OSError as error:
            raise self._failed(name, error) from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, and directories that become empty."""
        for name in names:
            path = self._directory / name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise self._failed(name, error) from error
            with suppress(OSError):
                path.parent.rmdir()

    def _written(self, path: Path, content: bytes) -> Path:
        """Write the content beside its path, under a name that no other writer has."""
        scratch = path.with_name(f".{path.name}.{token_hex(8)}")
        replace_bytes(scratch, content)
        return scratch

    def _failed(self, name: str, error: OSError) -> StorageFailed:
        return StorageFailed(f"{self._directory}: {name}: {error.strerror or error}")
