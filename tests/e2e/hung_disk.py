"""A disk that hangs: the sync of a journal that is counted never returns."""

import os
import threading
from typing import Any


def hang_at_sync(number: int) -> None:
    """Let this process's journal hang at its sync of a number, counted from 1."""
    sync, left = os.fdatasync, number

    def hang(fd: Any) -> None:
        nonlocal left
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".journal"):
            left -= 1
            if not left:
                threading.Event().wait()
        sync(fd)

    os.fdatasync = hang
