"""``metrics.jsonl``: one line for each committed iteration."""

import math
from pathlib import Path

from fullrank.common.durable import replace_file
from fullrank.common.errors import Malformed
from fullrank.common.foreign import open_regular, parse_json, regular
from fullrank.runs.record import IterationRecord, to_line


class JsonLines:
    """Appends a line for each iteration; the line is in the file when ``write`` returns.

    Args:
        path: The file; its directory exists.
        first_iteration: Where the run starts or resumes. Lines of this iteration and later ones are
            dropped first, since they will be written again.
    """

    def __init__(self, path: Path, *, first_iteration: int) -> None:
        if path.exists():
            _truncate(path, first_iteration)
        self._file = open(path, "a", encoding="utf-8", opener=regular)  # noqa: SIM115

    def write(self, record: IterationRecord) -> None:
        """Append a line and flush it."""
        self._file.write(to_line(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _truncate(path: Path, first_iteration: int) -> None:
    """Keep only the whole lines of iterations before ``first_iteration``."""
    with open_regular(path) as lines, replace_file(path) as file:
        file.writelines(line for line in lines if _iteration_of(line) < first_iteration)


def _iteration_of(line: bytes) -> float:
    """The line's iteration; infinite if the line is torn."""
    if not line.endswith(b"\n"):
        return math.inf
    try:
        return int(parse_json(line, origin="a line")["iteration"])
    except (Malformed, ValueError, KeyError, TypeError):
        return math.inf
