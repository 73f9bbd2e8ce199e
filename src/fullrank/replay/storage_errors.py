"""What the system refuses to a file of replay: for a while, or for good."""

import errno
from pathlib import Path

from fullrank.common.errors import ConfigError, FullrankError, StorageFailed

PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""Errors that end once there is room, or a descriptor, again."""


def refused(doing: str, path: Path, error: OSError) -> FullrankError:
    """``StorageFailed``, after which callers try again, or ``ConfigError``."""
    said = f"cannot {doing} {path}: {error.strerror or error}"
    if error.errno in PASSING:
        return StorageFailed(f"{said}; make room, and it continues")
    return ConfigError(f"{said}; mend that, and start replay again")
