"""Committed iterations in their wire format, encoded once and kept on disk.

While there are subscribers, new lines of ``metrics.jsonl`` are encoded and appended to an unnamed
file. The whole file is a valid WatchResponse, as is every sequence of iterations in it, so sending
is copying bytes.
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from fullrank.common.durable import write_at, writing
from fullrank.common.errors import StorageFailed
from fullrank.net.monitor_messages import encode_iteration
from fullrank.runs.record import Condemnation, Line, follow_lines
from fullrank.v1 import monitor_pb2 as pb

PIECE_BYTES = 256 * 1024
"""Largest message, unless a single iteration exceeds it."""


class Encoded(NamedTuple):
    """An iteration as a field of a WatchResponse."""

    iteration: int
    term: int
    data: bytes


@dataclass(slots=True, eq=False)
class Cursor:
    """Position of a subscriber."""

    index: int = 0


class IterationLog:
    """Encoded iterations in order, from the first in the file; for one event loop.

    Args:
        metrics: The run's ``metrics.jsonl``.

    Attributes:
        added: Iterations appended so far, including superseded ones.
    """

    def __init__(self, metrics: Path) -> None:
        self._lines: Iterator[list[Line]] = follow_lines(metrics)
        self._directory = metrics.parent
        self._file = _unnamed_file(self._directory)
        self._new: deque[Encoded | Condemnation] = deque()
        self._numbers, self._terms, self._ends = array("Q"), array("Q"), array("Q")
        self._cursors: list[Cursor] = []
        self.added = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> int:
        """The newest iteration; -1 before the first."""
        return self._numbers[-1] if self._numbers else -1

    def read(self) -> list[Encoded | Condemnation]:
        """Encode the lines written since the last call; slow, and safe on another thread."""
        return [_encoded(line) for line in next(self._lines)]

    def add(self, new: Sequence[Encoded | Condemnation]) -> None:
        """Append, by the rule of ``fullrank.runs.record.stand``.

        Raises:
            StorageFailed: The disk does not take them; the next call appends the rest.
        """
        self._new.extend(new)
        while self._new:
            self._add(self._new[0])
            self._new.popleft()

    def _add(self, encoded: Encoded | Condemnation) -> None:
        if isinstance(encoded, Condemnation):
            self._forget(bisect_left(self._numbers, encoded.iteration))
            return
        if encoded.iteration <= self.last and encoded.term <= self._terms[-1]:
            return  # unchanged: the file of a resumed run repeats it
        self._forget(bisect_left(self._numbers, encoded.iteration))
        start = self._end(len(self))
        with writing(self._directory, raised=StorageFailed):
            write_at(self._file.fileno(), memoryview(encoded.data), start)
        self._numbers.append(encoded.iteration)
        self._terms.append(encoded.term)
        self._ends.append(start + len(encoded.data))
        self.added += 1

    def _forget(self, index: int) -> None:
        if index == len(self):
            return
        self._file.truncate(self._end(index))
        del self._numbers[index:], self._terms[index:], self._ends[index:]
        for cursor in self._cursors:
            cursor.index = min(cursor.index, index)

    def _end(self, index: int) -> int:
        """End of the first ``index`` iterations, bytes."""
        return self._ends[index - 1] if index else 0

    @property
    def watched(self) -> bool:
        """True if there are cursors."""
        return bool(self._cursors)

    def open(self, first: int, seen_term: int) -> Cursor:
        """A cursor on the first iteration from ``first`` on, or of a term after ``seen_term``."""
        cursor = Cursor(self.find(first, seen_term))
        self._cursors.append(cursor)
        return cursor

    def find(self, first: int, seen_term: int) -> int:
        """Index of that iteration; the length of the log while there is none."""
        wanted = bisect_left(self._numbers, first)
        return min(wanted, bisect_right(self._terms, seen_term)) if seen_term else wanted

    def leave(self, cursor: Cursor) -> None:
        """Forget a cursor."""
        self._cursors.remove(cursor)

    def close(self) -> None:
        """Close and so delete the file."""
        self._file.close()

    def piece(self, cursor: Cursor) -> bytes:
        """The next iterations as an encoded WatchResponse; moves the cursor past them."""
        start = self._end(cursor.index)
        stop = max(cursor.index + 1, bisect_right(self._ends, start + PIECE_BYTES))
        cursor.index = stop
        return os.pread(self._file.fileno(), self._end(stop) - start, start)


def _unnamed_file(directory: Path) -> IO[bytes]:
    return TemporaryFile(dir=directory, buffering=0)


def _encoded(line: Line) -> Encoded | Condemnation:
    if isinstance(line, Condemnation):
        return line
    message = pb.WatchResponse(iterations=[encode_iteration(line)])
    return Encoded(line.iteration, line.term, message.SerializeToString())
