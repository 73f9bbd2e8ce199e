"""The committed iterations as those who watch get them: encoded once, and kept on disk.

``metrics.jsonl`` says what was committed. While somebody watches, what is new there is encoded and
appended to a nameless file, which as a whole is one valid WatchResponse; so is every sequence of
iterations in it, and sending is copying bytes.
"""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from fullrank.rpc.iterations import encode_iteration
from fullrank.runs.record import IterationRecord, follow
from fullrank.v1 import monitor_pb2 as pb

PIECE_BYTES = 256 * 1024
"""A message holds so much at most, unless a single iteration exceeds it."""


class Encoded(NamedTuple):
    """An iteration as a field of a WatchResponse."""

    iteration: int
    term: int
    data: bytes


@dataclass(slots=True, eq=False)
class Cursor:
    """How far somebody has read."""

    index: int = 0


class Iterations:
    """Iterations in order, from the first that the file knows; for one event loop.

    Args:
        metrics: The run's ``metrics.jsonl``.

    Attributes:
        added: Iterations appended so far, superseded ones too.
    """

    def __init__(self, metrics: Path) -> None:
        self._records: Iterator[list[IterationRecord]] = follow(metrics)
        self._file = _nameless_file(metrics.parent)
        self._numbers, self._terms, self._ends = array("Q"), array("Q"), array("Q")
        self._cursors: list[Cursor] = []
        self.added = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def last(self) -> int:
        """The newest iteration; -1 before the first."""
        return self._numbers[-1] if self._numbers else -1

    def read(self) -> list[Encoded]:
        """What was committed since the last call; slow, the only method for another thread."""
        return [_encoded(record) for record in next(self._records)]

    def add(self, new: Sequence[Encoded]) -> None:
        """Append; an iteration of a later term supersedes what was there from its number on."""
        for each in new:
            if self._knows(each):
                continue
            self._forget(bisect_left(self._numbers, each.iteration))
            self._numbers.append(each.iteration)
            self._terms.append(each.term)
            self._ends.append(self._end(len(self._ends)) + len(each.data))
            self._file.write(each.data)
            self.added += 1

    def _knows(self, each: Encoded) -> bool:
        """A resumed run's file begins anew; what did not change in it is not told again."""
        return each.iteration <= self.last and each.term <= self._terms[-1]

    def _forget(self, index: int) -> None:
        if index == len(self):
            return
        self._file.seek(self._end(index))
        self._file.truncate()
        del self._numbers[index:], self._terms[index:], self._ends[index:]
        for cursor in self._cursors:
            cursor.index = min(cursor.index, index)

    def _end(self, index: int) -> int:
        """Where the first ``index`` iterations end, bytes."""
        return self._ends[index - 1] if index else 0

    def open(self, first: int, seen_term: int) -> Cursor:
        """A cursor on the first iteration from ``first`` on, or of a later term than that seen."""
        cursor = Cursor(self.find(first, seen_term))
        self._cursors.append(cursor)
        return cursor

    def find(self, first: int, seen_term: int) -> int:
        """Index of that iteration; the length while there is none."""
        wanted = bisect_left(self._numbers, first)
        return min(wanted, bisect_right(self._terms, seen_term)) if seen_term else wanted

    def leave(self, cursor: Cursor) -> None:
        """Forget a cursor."""
        self._cursors.remove(cursor)

    def close(self) -> None:
        """Close the file, which ends with that."""
        self._file.close()

    def piece(self, cursor: Cursor) -> bytes:
        """The next iterations as an encoded WatchResponse; moves the cursor past them."""
        start = self._end(cursor.index)
        stop = max(cursor.index + 1, bisect_right(self._ends, start + PIECE_BYTES))
        cursor.index = stop
        return os.pread(self._file.fileno(), self._end(stop) - start, start)


def _nameless_file(directory: Path) -> IO[bytes]:
    return TemporaryFile(dir=directory, buffering=0)


def _encoded(record: IterationRecord) -> Encoded:
    message = pb.WatchResponse(iterations=[encode_iteration(record)])
    return Encoded(record.iteration, record.term, message.SerializeToString())
