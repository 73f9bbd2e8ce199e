"""``metrics.jsonl``: a line for each committed iteration."""

from collections import deque
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from fullrank.common.durable import replace_file, writing
from fullrank.common.errors import Malformed
from fullrank.common.foreign import open_regular, parse_json, regular
from fullrank.runs.record import Condemnation, IterationRecord, Line, stand, to_line


class JsonLines:
    """Appends lines; a line is in the file when ``write`` returns.

    A resumed run repeats records, of which the file has those that it had published before.

    Args:
        path: The file; its directory exists. Damaged lines are removed.
    """

    def __init__(self, path: Path) -> None:
        self._last = deque(_mended(path) if path.exists() else [], maxlen=1)
        self._file = open(path, "a", encoding="utf-8", opener=regular)  # noqa: SIM115

    def write(self, record: IterationRecord) -> None:
        """Append a record and flush it, unless the file has it."""
        if stand(self._last, _Place(record.iteration, record.term)):
            self._append(record)

    def condemn(self, first: int, *, term: int) -> None:
        """Condemn the iterations from ``first`` on, if the file has any."""
        if self._last and self._last.pop().iteration >= first:
            self._append(Condemnation(condemned=first, term=term))

    def _append(self, line: Line) -> None:
        self._file.write(to_line(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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
        with writing(path), closing(JsonLines(path)) as lines:
            lines.condemn(first, term=term)


class _Place(NamedTuple):
    """Place of a record."""

    iteration: int
    term: int


def _mended(path: Path) -> list[_Place]:
    """The places of the records that stand, once damaged lines are removed."""
    places: list[_Place] = []
    whole: list[bytes] = []
    damaged = False
    with open_regular(path) as lines:
        for line in lines:
            try:
                stand(places, _read(line))
                whole.append(line)
            except (Malformed, ValueError, KeyError, TypeError):
                damaged = True
    if damaged:
        with replace_file(path) as file:
            file.writelines(whole)
    return places


def _read(line: bytes) -> _Place | Condemnation:
    if not line.endswith(b"\n"):
        raise Malformed("the line is torn")
    facts = parse_json(line, origin="a line")
    if "condemned" in facts:
        return Condemnation(condemned=int(facts["condemned"]), term=int(facts["term"]))
    return _Place(int(facts["iteration"]), int(facts["term"]))
