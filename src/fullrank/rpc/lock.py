"""Locks of directories: one process at a time; a lock is released when its process ends.

Locked are the directory itself, which unlike a file in it cannot be removed while it is in use, and
its file ``lock``, which has the holder's process id and serves file systems that lock no
directories.
"""

import errno
import fcntl
import os
from contextlib import ExitStack
from pathlib import Path

from fullrank.common.errors import Malformed, RunDirectoryInUse
from fullrank.common.foreign import read_regular

FILE = "lock"


def lock_run(run_dir: Path) -> ExitStack:
    """Lock a run directory for as long as the returned stack stays open.

    Raises:
        RunDirectoryInUse: Another controller holds it.
    """
    return _lock(
        run_dir,
        f"{run_dir} is held by another controller; stop it or choose another --run-dir",
    )


def lock_replay(directory: Path) -> ExitStack:
    """Lock a directory of tables, which is made if missing, in the same way.

    Raises:
        RunDirectoryInUse: A replay service, or a run in one process, holds it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    return _lock(
        directory,
        f"{directory} is held by another process, a replay service or a run in one process; stop "
        "it or choose another --run-dir",
    )


def lock_launch(run_dir: Path) -> ExitStack:
    """Lock a run directory against a second ``fullrank train`` or ``resume``, in the same way.

    The services of the first one lock the directory only once they have started.

    Raises:
        RunDirectoryInUse: Another command trains in the directory.
    """
    logs = run_dir / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return _lock(
        logs,
        f"{run_dir} is held by another `fullrank train` or `resume`; stop it or choose another "
        "--run-dir",
    )


def _lock(directory: Path, refusal: str) -> ExitStack:
    with ExitStack() as stack:
        for path, flags in ((directory, os.O_RDONLY), (directory / FILE, os.O_RDWR | os.O_CREAT)):
            descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunDirectoryInUse(f"{refusal}{_holder(directory)}") from None
            except OSError as error:  # network file systems lock only what is open for writing
                if path != directory or error.errno not in _UNSUPPORTED:
                    raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return stack.pop_all()


_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


def _holder(directory: Path) -> str:
    """The process id of the holder, in brackets, if its file is still there."""
    try:
        text = read_regular(directory / FILE, 2**10).decode().strip()
    except (Malformed, UnicodeDecodeError):
        return ""
    return f" (process {text})" if text.isdecimal() else ""
