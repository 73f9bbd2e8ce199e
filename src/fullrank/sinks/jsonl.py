"""``metrics.jsonl``: a line for each committed iteration."""

from collections import deque
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from fullrank.common.durable import ROOM, replace_file, writing
from fullrank.common.errors import Malformed
from fullrank.common.foreign import open_regular, regular
from fullrank.runs.record import Condemnation, IterationRecord, Line, read_line, stand, to_line

KEPT = 1024
"""Records of a file that are remembered, the newest ones: no iteration before is condemned."""


class JsonLines:
    """Appends lines; a line is in the file when ``write`` returns.

    A resumed run repeats records, of which the file has those that it had published before.

    Args:
        path: The file; its directory exists. Damaged lines are removed.

    Raises:
        FullrankError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path, remedy=ROOM):
            self._standing = _mended(path) if path.exists() else deque[IterationRecord](maxlen=KEPT)
            self._file = open(path, "a", encoding="utf-8", opener=regular)  # noqa: SIM115

    def write(self, line: Line) -> None:
        """Append a line and flush it, unless it changes nothing.

        Raises:
            FullrankError: The disk does not take it; nothing more can be written.
        """
        if stand(self._standing, line):
            with writing(self._path, remedy=ROOM):
                self._file.write(to_line(line) + "\n")
                self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # the rest of a line of which ``write`` has said so
            self._file.close()


def keep(path: Path, records: Iterable[IterationRecord]) -> None:
    """Add the records that a file lacks.

    Raises:
        FullrankError: It cannot be written.
    """
    with closing(JsonLines(path)) as lines:
        for record in records:
            lines.write(record)


def condemn(path: Path, first: int, *, term: int) -> None:
    """Let the iterations of a file from ``first`` on stand no more, if there are any.

    Args:
        path: The file; it need not exist.
        first: The first of them.
        term: Term of the controller that condemns them.

    Raises:
        FullrankError: It cannot be written.
    """
    if path.exists():
        with closing(JsonLines(path)) as lines:
            lines.write(Condemnation(condemned=first, term=term))


def _mended(path: Path) -> deque[IterationRecord]:
    """The last records that stand in a file, once damaged lines are removed."""
    records: deque[IterationRecord] = deque(maxlen=KEPT)
    whole: list[bytes] = []
    with open_regular(path) as file:
        *lines, torn = file.read().split(b"\n")
    for line in lines:
        with suppress(Malformed):
            stand(records, read_line(line, origin="a line"))
            whole.append(line + b"\n")
    if torn or len(whole) < len(lines):
        with replace_file(path) as file:
            file.writelines(whole)
    return records
