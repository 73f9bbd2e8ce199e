"""Files from elsewhere, read within bounds."""

import os
import stat
from pathlib import Path

from fullrank.common.errors import FullrankError
from fullrank.common.text import plain


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a regular file of bounded size.

    A FIFO would wait for a writer, and a device may have no end.

    Args:
        path: The file; links are followed.
        limit_bytes: Largest size, which is all that is ever read.

    Raises:
        FullrankError: It cannot be read, is of another kind, or is larger.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FullrankError(f"cannot read {plain(path)}: {reason}") from error
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise FullrankError(f"{plain(path)} is not a regular file; name another")
        content = file.read(limit_bytes + 1) if found.st_size <= limit_bytes else b""
    if max(found.st_size, len(content)) > limit_bytes:
        raise FullrankError(
            f"{plain(path)} has {max(found.st_size, len(content))} bytes, and {limit_bytes} are "
            "the limit"
        )
    return content
