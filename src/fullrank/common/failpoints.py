"""Named points at which a test may end a process, as ``kill -9`` would.

``FULLRANK_FAILPOINT=journal.synced:3`` ends it the third time it gets there. Without the variable a
point costs one comparison. A rehearsal in virtual time, which has no process to end, raises
``Killed`` there instead.
"""

import os
import signal
from typing import NoReturn

VARIABLE = "FULLRANK_FAILPOINT"


class Killed(BaseException):
    """Whatever is beyond this point does not happen."""


_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_left = int(_count or 1)
_raising = False


def reach(name: str) -> None:
    """Die here if this is the point, and the time, that was asked for."""
    global _left
    if name == _name:
        _left -= 1
        if not _left:
            _die()


def rehearse(name: str, count: int) -> None:
    """Raise ``Killed`` the ``count``-th time that the point is reached from now on."""
    global _name, _left, _raising
    _name, _left, _raising = name, count, True


def _die() -> NoReturn:
    if _raising:
        raise Killed(_name)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is dead")
