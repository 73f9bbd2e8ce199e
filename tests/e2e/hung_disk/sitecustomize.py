"""A disk that hangs: the sync of a journal that ``HUNG_AT_SYNC`` counts never returns.

Python imports this module at its start where its folder is on ``PYTHONPATH``.
"""

import os
import threading
from typing import Any

_sync, _left = os.fdatasync, int(os.environ.get("HUNG_AT_SYNC", "0"))  # 0: it never hangs


def _hang(fd: Any) -> None:
    global _left
    if os.readlink(f"/proc/self/fd/{fd}").endswith(".journal"):
        _left -= 1
        if not _left:
            threading.Event().wait()
    _sync(fd)


os.fdatasync = _hang
