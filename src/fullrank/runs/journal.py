"""The journal: the updates of every committed iteration, on disk before the commit is announced.

``<directory>/000100-000002.journal`` holds the iterations from 100 on that the controller of term 2
committed, one record each: JSON facts, and the updates if they are small enough. A controller opens
a segment with its first commit and after every checkpoint, and only appends to it. A record
truncated by a crash was never acknowledged and is skipped. Inexact updates (``exact = false``) are
stored at any size: they depend on the received rows and cannot be computed again. An iteration that
was proved wrong is condemned, with all after it, by the last record of its term.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from fullrank.common.durable import ROOM, sync_directory, writing
from fullrank.common.failpoints import reach
from fullrank.common.rows import Rows
from fullrank.common.types import JSON
from fullrank.runs.journal_format import CONDEMNED, CUT_SHORT, Entry, SegmentReader, encode

UPDATE_BYTES = 16 * 2**20
"""Limit for stored updates; learners recompute larger ones, verified by their digests."""

SUFFIX = ".journal"
_NAME = re.compile(rf"(?P<first>\d+)-(?P<term>\d+){re.escape(SUFFIX)}", re.ASCII)

LOST = f"the iteration is not committed: {ROOM}"
"""Consequence of a write that failed, and its remedy."""
NO_UPDATES = np.empty((0, 0), np.float32)


class Record(NamedTuple):
    """A record that was appended to a segment."""

    segment: str
    """Name of the segment, without its suffix."""
    pieces: tuple[bytes, bytes]


class Journal:
    """Appends records to segments in a directory.

    Args:
        directory: Directory of the segments; made if missing.
        term: Term of this controller, higher than that of every existing segment.
        first: The iteration that is committed next.
        confirm: Called before each write; raises if the term of this controller has ended.
        sync: False where a store keeps the records, of which the directory has a copy.
    """

    def __init__(
        self,
        directory: Path,
        *,
        term: int,
        first: int,
        confirm: Callable[[], None],
        sync: bool = True,
    ) -> None:
        self._sync = sync
        self._directory, self._term, self._first = directory, term, first
        self._confirm = confirm
        self._file: BinaryIO | None = None

    def _open(self, first: int) -> BinaryIO:
        path = self._directory / f"{first:06d}-{self._term:06d}{SUFFIX}"
        with writing(path, remedy=LOST):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("wb")
            sync_directory(path.parent)
        return file

    def append(
        self,
        iteration: int,
        *,
        facts: JSON,
        updates: Rows,
        reproducible: bool = True,
        durable: bool = True,
    ) -> Record:
        """Store an iteration; returns its record.

        Args:
            iteration: Number of the iteration.
            facts: Further JSON.
            updates: Shape (M, P) float32.
            reproducible: Whether learners can compute the same bits again, so that large updates
                need not be stored.
            durable: Whether it is on disk on return, with all before it; False if another iteration
                follows at once.

        Raises:
            FullrankError: The write failed or ``confirm`` raised; the iteration is not committed.
        """
        stored = not reproducible or updates.nbytes <= UPDATE_BYTES
        record = encode(iteration, facts, updates, stored=stored)
        return self._store(record, durable=durable)

    def condemn(self, iteration: int, reason: str) -> Record:
        """Condemn an iteration and all after it durably, as the last record of this term.

        Raises:
            FullrankError: As ``append``; the iterations stand.
        """
        return self._store(encode(iteration, {CONDEMNED: reason}, NO_UPDATES, stored=False))

    def _store(self, record: tuple[bytes, bytes], *, durable: bool = True) -> Record:
        self._confirm()
        if self._file is None:
            self._file = self._open(self._first)
        path = Path(self._file.name)
        with writing(path, remedy=LOST):
            self._file.writelines(record)
            self._file.flush()
            reach("journal.written")
            if durable and self._sync:
                os.fdatasync(self._file.fileno())
            if durable:
                reach("journal.synced")
        return Record(path.stem, record)

    def begin_segment(self, first: int, *, keep_from: int) -> None:
        """Start a new segment, and remove segments that end before ``keep_from``."""
        if self._file is not None and self._file.tell():
            self._file.close()
            self._file = self._open(first)
        for segment, following in pairwise(_segments(self._directory)):
            if following.first <= keep_from:
                segment.path.unlink()
                reach("journal.pruned")

    def close(self) -> None:
        """Close the current segment, if there is one."""
        if self._file is not None:
            with suppress(OSError):  # the rest of a record of which the failed write has said so
                self._file.close()


def read(directory: Path, *, first: int) -> list[Entry]:
    """The iterations from ``first`` on, up to the first gap, as last committed.

    Raises:
        VersionMismatch: A later version of Fullrank wrote a segment.
    """
    return read_whole(directory, first=first)[0]


def read_whole(
    directory: Path, *, first: int | None = None, published: int = 0
) -> tuple[list[Entry], str]:
    """Every iteration that the journal reaches back to, as last committed.

    A later term supersedes the iterations of earlier terms from its own first one on; those that
    are condemned do not stand.

    Args:
        directory: Directory of the journal, to which a controller may be writing.
        first: Iteration before which none is read; by default the first that the journal holds.
        published: Number of iterations that the run is known to have committed.

    Returns:
        The entries up to the first that is damaged or missing, and the fault that names it; else
        an empty text.

    Raises:
        VersionMismatch: A later version of Fullrank wrote a segment.
    """
    entries: list[Entry] = []
    reached, begun, reading = first, published, None
    for segment in _segments(directory):
        begun = max(begun, segment.first)
        if reached is not None and reached < segment.first:
            continue  # of no use without the iterations before it
        reached, begun = _withdraw(entries, segment.first, first), max(published, segment.first)
        reading = SegmentReader(segment.path)
        try:
            for entry in reading:
                if entry.condemned:
                    reached = begun = _withdraw(entries, entry.iteration, first)
                elif entry.iteration == reached:
                    entries.append(entry)
                    reached += 1
                elif first is None or entry.iteration >= first:
                    reading.fault = "out of order"
                    break
        except FileNotFoundError:  # pruned meanwhile, after every segment before it
            entries, reached, reading = [], first, None
    if reading is None or ((reached or 0) >= begun and reading.fault in ("", CUT_SHORT)):
        return entries, ""
    fault = reading.fault or "whole without it"
    return entries, f"its journal entry is not in {reading.path}, which is {fault}"


def _withdraw(entries: list[Entry], iteration: int, first: int | None) -> int:
    """Remove the entries from an iteration on; returns the iteration that may follow."""
    if entries:
        del entries[max(0, iteration - entries[0].iteration) :]
    return iteration if first is None else max(iteration, first)


@dataclass(frozen=True, order=True, slots=True)
class _Segment:
    """One file; later terms, and later segments of a term, sort after earlier ones."""

    term: int
    first: int
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSurvey(_Segment):
    """A segment and its contents."""

    records: int
    """Number of whole records."""
    condemned: int | None
    """The iteration that its last record condemns with all after it; None if it condemns none."""
    fault: str
    """Why reading stopped after them: cut short, as by a crash, or damaged; else empty."""


def survey(directory: Path) -> list[SegmentSurvey]:
    """Survey of every segment, in the order in which they were written."""
    surveys = []
    for segment in _segments(directory):
        reading = SegmentReader(segment.path)
        try:
            entries = [(entry.iteration, entry.condemned) for entry in reading]
        except FileNotFoundError:  # pruned meanwhile
            continue
        surveys.append(
            SegmentSurvey(
                *astuple(segment),
                records=len(entries),
                condemned=entries[-1][0] if entries and entries[-1][1] else None,
                fault=reading.fault,
            )
        )
    return surveys


def ever_committed(directory: Path) -> int:
    """Iterations that were committed and never condemned, though a later term repeats them yet."""
    known = 0
    for segment in survey(directory):
        if segment.condemned is None:
            known = max(known, segment.first + segment.records)
        else:
            known = segment.condemned
    return known


def segments_in(directory: Path) -> list[str]:
    """Names of the segments, without their suffix, in the order in which they were written."""
    return [segment.path.stem for segment in _segments(directory)]


def _segments(directory: Path) -> list[_Segment]:
    named = ((_NAME.fullmatch(path.name), path) for path in directory.glob(f"*{SUFFIX}"))
    return sorted(
        _Segment(int(name["term"]), int(name["first"]), path) for name, path in named if name
    )
