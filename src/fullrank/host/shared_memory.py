"""Blocks of memory that one process writes and others of the same host read.

A block is an unnamed file in memory. Others open it through its writer's descriptor,
``/proc/<pid>/fd/<descriptor>``: that works for the processes of one user in one PID namespace,
needs no shared mount and leaves nothing behind when the writer is killed. The block begins with a
random id; a process that finds the id there has opened the block that it was told of.

Readers copy instead of mapping, so that a writer that truncates its block cannot kill them. Writes
are not atomic: a reader holds its copy to a checksum that it was sent.
"""

import os
import stat
import weakref
from pathlib import Path
from secrets import token_bytes

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from fullrank.common.durable import write_at
from fullrank.common.errors import NotFound
from fullrank.v1.common_pb2 import SharedBlock

ID_BYTES = 16
START = 4096
"""Offset of the first byte for data, on a page of its own."""


class WrittenBlock:
    """A block that this process writes; it lasts as long as this object.

    Raises:
        OSError: The system gives no file in memory.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("fullrank")
        weakref.finalize(self, os.close, self._file)
        self._id = token_bytes(ID_BYTES)
        os.pwrite(self._file, self._id, 0)

    @property
    def location(self) -> SharedBlock:
        """The place and the id of the block."""
        return SharedBlock(pid=os.getpid(), descriptor=self._file, id=self._id)

    def write(self, offset: int, array: NDArray[np.generic]) -> int:
        """Write a contiguous array at ``offset``, from ``START`` on; returns its checksum."""
        data = array.reshape(-1).view(np.uint8)
        checksum: int = google_crc32c.value(data)
        write_at(self._file, data.data, offset)
        return checksum


def written_block() -> WrittenBlock | None:
    """A new block; None if the system gives no file in memory."""
    try:
        return WrittenBlock()
    except (AttributeError, OSError):
        return None


class ReadBlock:
    """Another process's block; it can be read as long as this object lasts.

    Args:
        location: The place and the id of the block, as its writer names them.

    Raises:
        NotFound: This process cannot open the block, or finds another file in its place.
    """

    def __init__(self, location: SharedBlock) -> None:
        path = Path("/proc", str(location.pid), "fd", str(location.descriptor))
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise NotFound(f"the block cannot be opened: {error}") from None
        weakref.finalize(self, os.close, self._file)
        regular = stat.S_ISREG(os.fstat(self._file).st_mode)
        if not regular or os.pread(self._file, ID_BYTES, 0) != location.id:
            raise NotFound(f"{path} is not the block of the other process")

    def read(self, offset: int, into: NDArray[np.generic], *, checksum: int) -> bool:
        """Copy a contiguous array from ``offset`` on; False if the copy differs."""
        data = into.reshape(-1).view(np.uint8)
        done = 0
        while done < len(data):
            try:
                copied = os.preadv(self._file, [data[done:].data], offset + done)
            except (OSError, OverflowError):  # no such offset
                return False
            if not copied:
                return False
            done += copied
        intact: bool = google_crc32c.value(data) == checksum
        return intact
