"""Objects in an object store that speaks S3, by the library obstore.

Credentials, region and endpoint come from the usual variables of the environment (``AWS_...``), so
that no run directory holds them.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import from_url

from fullrank.common.errors import ConfigError, NotFound, StorageFailed

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

TIMEOUT_S, RETRIES = 30, 4
"""Limits on a request of ``PART_BYTES`` at most, and on its repetitions, which wait longer each
time."""
PART_BYTES, PARTS = 5 * 2**20, 2
"""Bytes of a larger object that one request carries, the fewest that S3 takes, and requests at a
time: a store that takes 350 KB a second is quick enough for objects of any size."""


class StoredObjects:
    """Objects below a URL such as ``s3://bucket/prefix``.

    Args:
        url: The URL.

    Raises:
        ConfigError: It names no store, or its settings are impossible.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._store = self._opened(timeout_s=TIMEOUT_S)

    def _opened(self, *, timeout_s: int) -> "ObjectStore":
        url = self._url
        options: ClientConfig = {"timeout": f"{timeout_s} seconds"}
        if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["allow_http"] = True
        try:
            return from_url(url, client_options=options, retry_config={"max_retries": RETRIES})
        except (BaseError, ValueError) as error:
            raise ConfigError(f"{url} is no object store: {_line(error)}") from None

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        with self._reported(name):
            obstore.put(self._store, name, content, chunk_size=PART_BYTES, max_concurrency=PARTS)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of that name, with one request of any size."""
        parts = 1 + len(content) // PART_BYTES
        with self._reported(name):
            store = self._store if parts == 1 else self._opened(timeout_s=parts * TIMEOUT_S)
            try:
                obstore.put(store, name, content, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def get(self, name: str) -> bytes:
        """Content of an object."""
        with self._reported(name):
            try:
                whole = obstore.get(self._store, name)
                if (size := whole.meta["size"]) <= PART_BYTES:
                    return bytes(whole.bytes())
                parts = [
                    obstore.get_range(
                        self._store, name, start=start, length=min(PART_BYTES, size - start)
                    )
                    for start in range(0, size, PART_BYTES)
                ]
                return b"".join(parts)
            except (NotFoundError, FileNotFoundError):
                raise NotFound(f"{self._url} holds no {name}") from None

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; missing ones are ignored."""
        for name in names:
            with self._reported(name):
                try:
                    obstore.delete(self._store, name)
                except (NotFoundError, FileNotFoundError):
                    continue

    @contextmanager
    def _reported(self, name: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError) as error:
            raise StorageFailed(f"{self._url}: {name}: {_line(error)}") from error


def _line(error: Exception) -> str:
    """The first line of an error of the library, without queries, which may hold signatures."""
    return re.sub(r"\?\S+", "", str(error).partition("\n")[0])
