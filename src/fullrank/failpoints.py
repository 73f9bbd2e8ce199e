"""Named points at which a test may end a process, as ``kill -9`` would.

``FULLRANK_FAILPOINT=journal.synced:3`` ends it the third time it gets there. Without the variable a
point costs one comparison.
"""

import os
import signal

VARIABLE = "FULLRANK_FAILPOINT"

_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_left = int(_count or 1)


def reach(name: str) -> None:
    """Die here if this is the point, and the time, that was asked for."""
    global _left
    if name == _name:
        _left -= 1
        if not _left:
            os.kill(os.getpid(), signal.SIGKILL)
