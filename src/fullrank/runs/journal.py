"""The journal: the updates of every committed iteration, on disk before the commit is announced.

``<directory>/000100-000002.journal`` holds the iterations from 100 on that the controller of term 2
committed, one record each: JSON facts, and the updates if they are small enough. A controller opens
a segment with its first commit and after every checkpoint, and only appends to it. A record
truncated by a crash was never acknowledged and is skipped. Inexact updates (``exact = false``) are
stored at any size: they depend on the received rows and cannot be computed again.
"""

import json
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import google_crc32c
import numpy as np

from fullrank.common.durable import sync_directory
from fullrank.common.errors import FullrankError, VersionMismatch
from fullrank.common.failpoints import reach
from fullrank.common.types import JSON, FloatArray

UPDATE_BYTES = 16 * 2**20
"""Limit for stored updates; learners recompute larger ones, verified by their digests."""

_HEADER = struct.Struct("<4sIQII")
"""Mark, bytes of facts, bytes of updates, units, CRC-32C of everything but itself."""
_KIND, _VERSION = b"FRJ", b"1"
_MARK = _KIND + _VERSION
SUFFIX = ".journal"
_NAME = re.compile(rf"(?P<first>\d+)-(?P<term>\d+){re.escape(SUFFIX)}", re.ASCII)

CUT_SHORT = "cut short"
"""Fault of a segment whose last record was being written when its controller was killed."""

WriteResult = TypeVar("WriteResult")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A committed iteration."""

    iteration: int
    facts: JSON
    updates: FloatArray | None
    """Shape (M, P) float32; None if they were too large to store."""


class Record(NamedTuple):
    """A whole record of a segment."""

    segment: str
    """Name of the segment, without its suffix."""
    iteration: int
    pieces: tuple[bytes, ...]

    @property
    def content(self) -> bytes:
        """The record as it is stored."""
        return b"".join(self.pieces)


class Journal:
    """Appends records to segments in a directory.

    Args:
        directory: Directory of the segments; made if missing.
        term: Term of this controller, higher than that of every existing segment.
        first: The iteration that is committed next.
        confirm: Called before each write; raises if the term of this controller has ended.
    """

    def __init__(
        self, directory: Path, *, term: int, first: int, confirm: Callable[[], None]
    ) -> None:
        self._directory, self._term, self._first = directory, term, first
        self._confirm = confirm
        self._file: BinaryIO | None = None

    def _open(self, first: int) -> BinaryIO:
        return _opened(self._directory, term=self._term, first=first)

    def append(
        self, iteration: int, *, facts: JSON, updates: FloatArray, reproducible: bool = True
    ) -> Record:
        """Store an iteration durably; returns its record.

        Args:
            iteration: Number of the iteration.
            facts: Further JSON.
            updates: Shape (M, P) float32.
            reproducible: Whether learners can compute the same bits again, so that large updates
                need not be stored.

        Raises:
            FullrankError: The write failed or ``confirm`` raised; the iteration is not committed.
        """
        self._confirm()
        if self._file is None:
            self._file = self._open(self._first)
        file = self._file
        stored = not reproducible or updates.nbytes <= UPDATE_BYTES
        record = _encode(iteration, facts, updates, stored=stored)
        path = Path(file.name)
        _writing(path, lambda: _append(file, record))
        return Record(path.stem, iteration, record)

    def begin_segment(self, first: int, *, keep_from: int) -> None:
        """Start a new segment, and remove segments that end before ``keep_from``."""
        if self._file is not None and self._file.tell():
            self._file.close()
            self._file = self._open(first)
        segments = _segments(self._directory)
        for segment, following in pairwise(segments):
            if following.first <= keep_from:
                segment.path.unlink()
                reach("journal.pruned")

    def close(self) -> None:
        """Close the current segment, if there is one."""
        if self._file is not None:
            self._file.close()


def read(directory: Path, *, first: int) -> list[Entry]:
    """The iterations from ``first`` on, up to the first gap, as last committed.

    A later term supersedes the iterations of earlier terms from its own first one on.

    Raises:
        VersionMismatch: A later version of Fullrank wrote a segment.
    """
    latest: dict[int, Entry] = {}
    for segment in _segments(directory):
        for iteration in [iteration for iteration in latest if iteration >= segment.first]:
            del latest[iteration]
        entries = (entry for entry in _Reading(segment.path) if entry.iteration >= first)
        latest.update((entry.iteration, entry) for entry in entries)
    whole: list[Entry] = []
    while (entry := latest.get(first + len(whole))) is not None:
        whole.append(entry)
    return whole


def read_whole(directory: Path, *, published: int) -> tuple[list[Entry], str]:
    """Every iteration that the journal reaches back to, as last committed.

    Args:
        directory: Directory of the journal, to which a controller may be writing.
        published: Number of iterations that the run is known to have committed.

    Returns:
        The entries up to the first that is damaged or missing, and the fault that names it; else
        an empty text.

    Raises:
        VersionMismatch: A later version of Fullrank wrote a segment.
    """
    entries: list[Entry] = []
    reached, begun, reading = 0, published, None
    for segment in _segments(directory):
        begun = max(begun, segment.first)
        if reading is not None and reached < segment.first:
            continue  # of no use without the iterations before it
        if entries:
            del entries[max(0, segment.first - entries[0].iteration) :]
        reached, begun = segment.first, max(published, segment.first)
        reading = _Reading(segment.path)
        try:
            for entry in reading:
                if entry.iteration != reached:
                    reading.fault = "out of order"
                    break
                entries.append(entry)
                reached += 1
        except FileNotFoundError:  # pruned meanwhile, after every segment before it
            entries, reading = [], None
    if reading is None or (reached >= begun and reading.fault in ("", CUT_SHORT)):
        return entries, ""
    fault = reading.fault or "whole without it"
    return entries, f"its journal entry is not in {reading.path}, which is {fault}"


def supersede(directory: Path, *, term: int, first: int) -> None:
    """Withdraw the iterations that earlier terms committed from ``first`` on; their records stay.

    After the return every reader of the journal resumes at ``first`` at the latest.

    Args:
        directory: Directory of the journal.
        term: Term of the next controller, higher than that of every existing segment.
        first: The iteration that is committed next.
    """
    _opened(directory, term=term, first=first).close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSurvey:
    """Contents of a segment."""

    path: Path
    term: int
    first: int
    """The segment's first iteration."""
    records: int
    """Number of whole records."""
    fault: str
    """Why reading stopped after them: cut short, as by a crash, or damaged; else empty."""


def survey(directory: Path) -> list[SegmentSurvey]:
    """Survey of every segment, in the order in which they were written."""
    surveys = []
    for segment in _segments(directory):
        reading = _Reading(segment.path)
        records = sum(1 for _ in reading)
        surveys.append(
            SegmentSurvey(
                path=segment.path,
                term=segment.term,
                first=segment.first,
                records=records,
                fault=reading.fault,
            )
        )
    return surveys


@dataclass(frozen=True, order=True, slots=True)
class _Segment:
    """One file; later terms, and later segments of a term, sort after earlier ones."""

    term: int
    first: int
    path: Path


def segments_in(directory: Path) -> list[str]:
    """Names of the segments, without their suffix, in the order in which they were written."""
    return [segment.path.stem for segment in _segments(directory)]


def term_of(segment: str) -> int:
    """The term of a segment of this name; 0 if there is no such name."""
    named = _NAME.fullmatch(f"{segment}{SUFFIX}")
    return int(named["term"]) if named else 0


def records(directory: Path) -> Iterator[Record]:
    """Every whole record of every segment, as it is stored."""
    for segment in _segments(directory):
        reading = _Reading(segment.path)
        for entry in reading:
            yield Record(segment.path.stem, entry.iteration, (reading.record,))


def _segments(directory: Path) -> list[_Segment]:
    named = ((_NAME.fullmatch(path.name), path) for path in directory.glob(f"*{SUFFIX}"))
    return sorted(
        _Segment(int(name["term"]), int(name["first"]), path) for name, path in named if name
    )


def _encode(
    iteration: int, facts: JSON, updates: FloatArray, *, stored: bool
) -> tuple[bytes, bytes]:
    """A record in two pieces; the second, the updates, is not copied again."""
    text = json.dumps({"iteration": iteration, **facts}).encode()
    data = updates.astype("<f4", copy=False).tobytes() if stored else b""
    lengths = (_MARK, len(text), len(data), len(updates))
    checksum = google_crc32c.extend(google_crc32c.value(_HEADER.pack(*lengths, 0) + text), data)
    return _HEADER.pack(*lengths, checksum) + text, data


class _Reading:
    """Iterates over the records of a segment up to the first that is not whole.

    Updates are mapped, not read, until they are used.
    """

    def __init__(self, path: Path) -> None:
        self.fault = ""
        """Why the iteration ended before the end of the file; else empty."""
        self.path = path
        self._content: mmap.mmap | bytes = b""
        self._span = slice(0)

    @property
    def record(self) -> bytes:
        """Return the bytes of the record that was read last."""
        return self._content[self._span]

    def __iter__(self) -> Iterator[Entry]:
        if not self.path.stat().st_size:
            return
        with self.path.open("rb") as file:
            self._content = content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = 0
        while start < len(content):
            try:
                entry, end = _decode(content, start)
            except _NotWhole as error:
                self.fault = str(error)
                return
            except _OtherVersion as error:
                raise VersionMismatch(
                    f"{self.path} has records of format {error}, and this version of Fullrank "
                    f"reads {_MARK!r}: install the version that wrote it, or a later one"
                ) from None
            self._span, start = slice(start, end), end
            yield entry


class _OtherVersion(Exception):
    """A whole record of another format; the message is its mark."""


class _NotWhole(Exception):
    """No whole record lies at this position; the message is the fault."""


def _decode(content: mmap.mmap, start: int) -> tuple[Entry, int]:
    """The record at ``start``, and the position after it."""
    body = start + _HEADER.size
    if body > len(content):
        raise _NotWhole(CUT_SHORT)
    mark, text_size, data_size, units, checksum = _HEADER.unpack_from(content, start)
    data, end = body + text_size, body + text_size + data_size
    if not mark.startswith(_KIND):
        raise _NotWhole("damaged")
    if end > len(content):
        raise _NotWhole(CUT_SHORT)
    lengths = _HEADER.pack(mark, text_size, data_size, units, 0)
    if google_crc32c.value(lengths + content[body:end]) != checksum:
        raise _NotWhole("damaged")
    if mark != _MARK:
        raise _OtherVersion(repr(mark))
    try:
        facts = json.loads(content[body:data])
        updates = None
        if data_size:
            updates = np.frombuffer(content, "<f4", data_size // 4, data).reshape(units, -1)
        iteration = facts.pop("iteration")
        if type(iteration) is not int:
            raise TypeError("its iteration is no number")
        return Entry(iteration=iteration, facts=facts, updates=updates), end
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise _NotWhole(f"not a journal ({error})") from error


def _opened(directory: Path, *, term: int, first: int) -> BinaryIO:
    path = directory / f"{first:06d}-{term:06d}{SUFFIX}"
    return _writing(path, lambda: _created(path))


def _created(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("wb")
    sync_directory(path.parent)
    return file


def _append(file: BinaryIO, record: tuple[bytes, bytes]) -> None:
    file.writelines(record)
    file.flush()
    reach("journal.written")
    os.fdatasync(file.fileno())
    reach("journal.synced")


def _writing(path: Path, write: Callable[[], WriteResult]) -> WriteResult:
    try:
        return write()
    except OSError as error:
        raise FullrankError(
            f"cannot write {path}: {error.strerror}; the iteration is not committed: make room and "
            "resume"
        ) from error
