"""Locks of directories: one process at a time; a lock is released when its process ends."""

import fcntl
from pathlib import Path
from typing import TextIO

from fullrank.common.errors import RunDirectoryInUse


def lock_run(run_dir: Path) -> TextIO:
    """Lock a run directory for as long as the returned file stays open.

    Raises:
        RunDirectoryInUse: Another controller holds it.
    """
    return _lock(
        run_dir,
        f"{run_dir} is held by another controller; stop it or choose another --run-dir",
    )


def lock_replay(directory: Path) -> TextIO:
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


def _lock(directory: Path, refusal: str) -> TextIO:
    file = (directory / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunDirectoryInUse(refusal) from None
    return file
