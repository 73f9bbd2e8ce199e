"""``metrics.jsonl``: a line for each committed iteration."""

import logging
import os
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from fullrank.common.durable import ROOM, replace_file, writing
from fullrank.common.errors import Malformed
from fullrank.common.foreign import open_regular, regular
from fullrank.runs.record import Condemnation, IterationRecord, Line, read_line, stand, to_line

log = logging.getLogger(__name__)

DAMAGED = ".damaged"
"""Ending of the file beside it to which damaged lines are moved."""
KEPT = 1024
"""Records of a file that are remembered, the newest ones: no iteration before is condemned."""


class JsonLines:
    """Appends lines; a line is in the file when ``write`` returns.

    A resumed run repeats records, of which the file has those that it had published before.

    Args:
        path: The file; its directory exists. Damaged lines are moved to a file beside it.
        known: Records, in order, of which those are inserted that lines after them lack.

    Raises:
        FullrankError: It cannot be written.
    """

    def __init__(self, path: Path, known: Sequence[IterationRecord] = ()) -> None:
        self._path = path
        with writing(path, remedy=ROOM):
            self._standing = deque[IterationRecord](maxlen=KEPT)
            if path.exists():
                self._standing = _mended(path, known)
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

    def sync(self) -> None:
        """Force the lines to disk.

        Raises:
            FullrankError: It does not take them.
        """
        with writing(self._path, remedy=ROOM):
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # the rest of a line of which ``write`` has said so
            self._file.close()


def complete(path: Path, records: Sequence[IterationRecord], end: Condemnation) -> None:
    """Add the records that a file lacks, each before those of later iterations.

    Args:
        path: The file.
        records: All that the journal holds, in order.
        end: Condemns iterations after them, if the file has any.

    Raises:
        FullrankError: It cannot be written.
    """
    with closing(JsonLines(path, records)) as lines:
        for record in records:
            lines.write(record)
        lines.write(end)


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


class _Written(NamedTuple):
    """A line of a file."""

    iteration: int
    term: int
    is_record: bool
    text: bytes


def _mended(path: Path, known: Sequence[IterationRecord] = ()) -> deque[IterationRecord]:
    """The last records that stand in a file, once damaged lines are removed and known ones are in.

    A power cut may have lost lines that others follow.
    """
    records: deque[IterationRecord] = deque(maxlen=KEPT)
    whole, damaged = list[_Written](), list[bytes]()
    with open_regular(path) as file:
        *lines, torn = file.read().split(b"\n")
    for text in lines:
        try:
            line = read_line(text, origin="a line")
            stand(records, line)
        except Malformed:
            damaged.append(text)
            continue
        is_record = isinstance(line, IterationRecord)
        whole.append(_Written(line.iteration, line.term, is_record, text))
    if damaged:
        kept = path.with_name(f"{path.name}{DAMAGED}")
        with kept.open("ab") as file:
            file.writelines(line + b"\n" for line in damaged)
        log.warning("lines_damaged path=%s lines=%d kept=%s", path, len(damaged), kept)
    inserted = _insert(known, whole)
    if torn or damaged or inserted:
        with replace_file(path) as file:
            file.writelines(line.text + b"\n" for line in whole)
    return _mended(path) if inserted else records


def _insert(known: Iterable[IterationRecord], lines: list[_Written]) -> bool:
    """Insert records before lines of later iterations; returns whether there are any."""
    terms = {line.iteration: line.term for line in lines if line.is_record}
    before = len(lines)
    for record in known:
        if terms.get(record.iteration, -1) < record.term:
            at = len(lines)
            while (
                at
                and lines[at - 1].iteration > record.iteration
                and lines[at - 1].term >= record.term
            ):
                at -= 1
            if at < len(lines):
                text = to_line(record).encode()
                lines.insert(at, _Written(record.iteration, record.term, True, text))
    return len(lines) > before
