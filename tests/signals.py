"""Signal dispositions of a process, read from the system."""

from pathlib import Path
from typing import Literal


def holds(mask: Literal["SigCgt", "SigIgn"], number: int, *, process: int | str = "self") -> bool:
    """True if a process catches (``SigCgt``) or ignores (``SigIgn``) a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    (bits,) = (line.split()[1] for line in status.splitlines() if line.startswith(mask))
    return bool(int(bits, 16) >> (number - 1) & 1)
