"""Failpoints: named points at which a test kills a process as ``kill -9`` does.

``FULLRANK_FAILPOINT=journal.synced:3`` kills it when it reaches the point for the third time.
Without the variable a failpoint costs one comparison. A simulation in virtual time, which has no
process to kill, arms failpoints that raise ``Killed`` instead. This is global state of the library,
as in etcd's gofail: failpoints lie far apart, and production never arms them.
"""

import os
import signal
from typing import NoReturn

VARIABLE = "FULLRANK_FAILPOINT"


class Killed(BaseException):
    """The process would be dead from this failpoint on."""


_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_left = int(_count or 1)
_raising = False


def reach(name: str) -> None:
    """Die if this is the armed failpoint and its count is reached."""
    global _left
    if name == _name:
        _left -= 1
        if not _left:
            _die()


def arm(name: str, count: int) -> None:
    """Raise ``Killed`` when the failpoint is reached for the ``count``-th time from now on."""
    global _name, _left, _raising
    _name, _left, _raising = name, count, True


def _die() -> NoReturn:
    if _raising:
        raise Killed(_name)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("the process is dead")
