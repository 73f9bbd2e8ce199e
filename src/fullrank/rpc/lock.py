"""Lock of a run directory: one controller at a time; it is released when its process ends."""

import fcntl
from pathlib import Path
from typing import TextIO

from fullrank.common.errors import RunDirectoryInUse


def lock_run(run_dir: Path) -> TextIO:
    """Lock the directory for as long as the returned file stays open.

    Raises:
        RunDirectoryInUse: Another controller holds it.
    """
    file = (run_dir / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise RunDirectoryInUse(
            f"{run_dir} is held by another controller; stop it or choose another --run-dir"
        ) from None
    return file
