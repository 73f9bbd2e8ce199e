"""The log of a run in its store, which is the fence of its controllers (ADR 128).

``log/<sequence>`` is an entry: the record that begins a term, records of the journal, or the word
that a checkpoint is complete. It is created where there is none and never replaced: a controller
that begins creates the entry after the last one as that of its term, and the next entry of its
predecessor is refused. ``heads/<term>`` is the newest head that the controller of a term has
written, where a reader begins. Heads have the numbers of terms without a gap, and are found by
bisection; nothing is listed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter

from fullrank.common.errors import CheckpointUnusable, Malformed, NotFound, StaleTerm, StorageFailed
from fullrank.common.failpoints import reach
from fullrank.common.schema import Name, Ordinal, validated
from fullrank.common.types import FloatArray
from fullrank.replay.staging import rows_digest
from fullrank.runs.checkpoint import MANIFEST, STATE
from fullrank.runs.identity import CHECKPOINTS, check_release
from fullrank.runs.journal import NO_UPDATES
from fullrank.runs.journal_format import decode_first, encode
from fullrank.runs.objects import Objects

LOST = (
    "once it takes writes, start this controller again: the run goes on from the last stored entry"
)
"""Remedy of a write that failed."""
METRICS, ROWS = "metrics", "rows"
"""Folders of the objects with metrics, and with rows of replay."""
FILES = (STATE, MANIFEST)
"""Objects of a checkpoint."""
_LOG, _HEADS = "log", "heads"

_Folder: TypeAlias = Annotated[str, Field(pattern=r"^\d{6,18}-\d{6,18}$")]
_Segment: TypeAlias = Annotated[str, Field(pattern=r"^(\d{6,18}-\d{6,18})?$")]
_PART = r"/[0-9a-z][0-9a-z.-]{0,60}"
_NAMED = rf"({_LOG}|{_HEADS}|{METRICS}|{ROWS}|{CHECKPOINTS})({_PART}){{1,2}}"
_Object: TypeAlias = Annotated[str, Field(pattern=f"^{_NAMED}$")]
_Place: TypeAlias = Annotated[str, Field(pattern=f"^({_NAMED})?$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSegment:
    """Consecutive rows of replay, which are the last bytes of an object."""

    first: Ordinal
    last: Ordinal
    """One past the last position."""
    size_bytes: Ordinal
    digest: str
    """``rows_digest``, in hexadecimal digits."""
    name: _Place = ""
    """The object; empty: the entry of the log that says so."""

    @property
    def is_own(self) -> bool:
        """True if the object holds nothing but these rows, and outlives entries of the log."""
        return self.name.startswith(ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHead:
    """Where a reader of the log begins, and what it needs beside the log."""

    sequence: Ordinal = 0
    """The first entry that it needs."""
    checkpoints: Mapping[_Folder, Ordinal] = field(default_factory=dict)
    """Folders of the checkpoints, oldest first, each with the first entry after it."""
    metrics: tuple[_Object, ...] = ()
    """Names of the objects with the metrics, in order."""
    rows: tuple[RowSegment, ...] = ()
    """The rows from which the checkpoints draw, in order; two may leave a gap."""

    @property
    def objects(self) -> set[str]:
        """Names of what it needs beside the log."""
        files = {f"{CHECKPOINTS}/{each}/{name}" for each in self.checkpoints for name in FILES}
        return files | set(self.metrics) | {segment.name for segment in self.rows}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The facts of an entry; the records of a segment of the journal may follow them."""

    run: Name
    release: Name
    term: Ordinal
    instance: Ordinal
    """Drawn by the controller: its own entry, whose answer was lost, is equal in every byte."""
    config_digest: Name = ""
    opens: bool = False
    """True if it begins a term."""
    segment: _Segment = ""
    """Segment of the journal to which its records belong."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Small files that have changed; all of them where there is a head."""
    head: LogHead | None = None
    """The head from now on, if it changes."""
    rows: RowSegment | None = None
    """Rows at the end of this entry, which replace all that were stored from there on."""
    strays: tuple[_Object, ...] = ()
    """Objects that are written or removed next: if no head names one, nobody needs it."""
    whole: bool = True
    """False until the store has all that the directory held with which it began."""


_HEADER = TypeAdapter(Header)


class Log:
    """The log of one run.

    Args:
        objects: The store.
        place: The store, for messages.
        restart: Called before entries are read from the newest head on.
        take: Takes the segment of the journal and the records of each entry that is read.

    Attributes:
        place: As given.
        own: The facts that all entries of this controller have.
        last: The facts of the last entry that was read.
        head: The newest head.
        next: The entry that is written next.
        openings: Entries that begin terms.
        files: The small files.
        rows: All rows that are stored, in order.
        strays: Objects that an interrupted controller may have left.
    """

    def __init__(
        self,
        objects: Objects,
        place: str,
        *,
        restart: Callable[[], None],
        take: Callable[[str, bytes], None],
    ) -> None:
        self._objects, self.place = objects, place
        self._restart, self._take_records = restart, take
        self.own = self.last = Header(run="", release="", term=0, instance=0)
        self.head, self.next = LogHead(), 0
        self.openings, self.strays = set[int](), set[str]()
        self.files: dict[str, str] = {}
        self.rows: tuple[RowSegment, ...] = ()
        self._doubtful = False
        """True after a failed write, whose entry a successor may have read and removed."""

    def read(self) -> Header | None:
        """Read to the end.

        Returns:
            The facts of the last entry; None if there is none.

        Raises:
            CheckpointUnusable: An entry is damaged.
            StorageFailed: The store cannot be reached.
            VersionMismatch: Another minor release began the run.
        """
        missing = -1
        while (begin := self._read()) == self.next and self.last.term:
            if begin == missing:  # else it was removed by a controller that has a newer head
                raise CheckpointUnusable(
                    f"{self.place} holds no {entry_name(begin)}, with which the run goes on; "
                    "restore the store from a copy, or start anew with another store.url"
                )
            missing = begin
        return self.last if self.last.term else None

    def _read(self) -> int:
        """Read the entries from the newest head on; returns the number of the first of them."""
        self._restart()
        self.openings, self.strays, self.rows = set(), set(), ()
        _, newest = self.newest_head()
        if newest is not None:
            self._take(newest)
        begin = self.next = self.head.sequence
        self.follow()
        return begin

    def newest_head(self) -> tuple[int, Header | None]:
        """The number of the newest head, and the entry that it repeats; 0 if there is none."""
        low, high, newest = 0, 1, None
        while (found := self._entry(f"{_HEADS}/{high:06d}")) is not None:
            low, high, newest = high, 2 * high, found[0]
        while high - low > 1:
            middle = (low + high) // 2
            if (found := self._entry(f"{_HEADS}/{middle:06d}")) is None:
                high = middle
            else:
                low, newest = middle, found[0]
        return low, newest

    def follow(self) -> None:
        """Read the entries from the next one on."""
        while (found := self._entry(entry_name(self.next))) is not None:
            header, records = found
            self._take(header)
            if header.segment:
                appended = header.rows.size_bytes if header.rows else 0
                self._take_records(header.segment, records[: len(records) - appended])
            self.next += 1

    def _take(self, header: Header) -> None:
        """Take note of an entry, which was read or written."""
        self.last, self.head = header, header.head or self.head
        self.files |= header.files
        self.strays |= set(header.strays)
        if header.opens:
            self.openings.add(self.next)
        if header.head is not None:
            stored = header.head.rows
            self.rows = (*stored, *(each for each in self.rows if each.first >= end_of(stored)))
        if header.rows is not None:
            before = (each for each in self.rows if each.last <= header.rows.first)
            self.rows = (*before, replace(header.rows, name=entry_name(self.next)))

    def _entry(self, name: str) -> tuple[Header, bytes] | None:
        """The facts and the records of an object; None if there is none of that name."""
        try:
            content = self._objects.get(name)
        except NotFound:
            return None
        origin = f"{self.place}: {name}"
        facts, end = decode_first(content, origin=origin)
        check_release(facts, where=self.place)
        try:
            return validated(_HEADER, facts, origin=origin), content[end:]
        except Malformed as error:
            raise CheckpointUnusable(str(error)) from None

    def create(self, records: bytes = b"", **facts: Any) -> bool:
        """Create the next entry; False if there is one of another controller.

        An entry whose answer was lost is found again: the instance is its writer's nonce.

        Raises:
            StorageFailed: The store does not take it.
        """
        header = replace(self.own, **facts)
        content, failure = self._encoded(header) + records, None
        try:
            created = self._objects.create(entry_name(self.next), content)
        except StorageFailed as error:
            created, failure = False, error
        if not created:
            try:
                created = self._objects.get(entry_name(self.next)) == content
            except NotFound:
                if failure is not None:
                    raise StorageFailed(f"{failure}; {LOST}") from failure
        if created:
            self._take(header)
            self.next += 1
            reach("store.written")
        return created

    def write(self, records: bytes = b"", **facts: Any) -> None:
        """Create the next entry.

        Raises:
            StaleTerm: A later controller has created it.
            StorageFailed: The store does not take it.
        """
        doubtful, self._doubtful = self._doubtful, True
        while not self.create(records, **facts):
            found = self._entry(entry_name(self.next))
            if found is None or found[0].instance != self.own.instance:
                raise self.superseded(found[0].term if found else self.own.term + 1)
            self._take(found[0])  # its answer was lost, and it could not be read back
            self.next += 1
        if doubtful:
            self.check_end()
        self._doubtful = False

    def check_end(self) -> int:
        """The number of the newest head, after an entry was created.

        Raises:
            StaleTerm: The entry was removed, and not the end of the log.
            StorageFailed: The store cannot be reached.
        """
        number, newest = self.newest_head()
        if newest is not None and newest.head is not None and newest.head.sequence >= self.next:
            raise self.superseded(newest.term)
        return number

    def put_head(self, number: int) -> None:
        """Write the newest head as that of a term."""
        content = self._encoded(replace(self.own, head=self.head, files=self.files))
        self._objects.put(f"{_HEADS}/{number:06d}", content)

    def _encoded(self, header: Header) -> bytes:
        facts = _HEADER.dump_python(header, mode="json", exclude_defaults=True)
        return b"".join(encode(self.next, facts, NO_UPDATES, stored=False))

    def confirm(self) -> None:
        """Return if no later controller has begun a term.

        Raises:
            StaleTerm: Another one has.
            StorageFailed: The store cannot be reached.
        """
        found = self._entry(entry_name(self.next))
        if found is not None and found[0].instance != self.own.instance:
            raise self.superseded(found[0].term)

    def superseded(self, term: int) -> StaleTerm:
        """The error of a controller that another one follows."""
        return StaleTerm(
            f"{self.place}: another controller has begun term {term} of the run; nothing more is "
            "stored or published here"
        )


def entry_name(sequence: int) -> str:
    """Name of an entry of the log."""
    return f"{_LOG}/{sequence:012d}"


def end_of(rows: Sequence[RowSegment]) -> int:
    """One past the last position of consecutive segments; 0 if there are none."""
    return rows[-1].last if rows else 0


def segment_of(first: int, rows: FloatArray) -> RowSegment:
    """Return the segment of rows from a position on."""
    return RowSegment(
        first=first, last=first + len(rows), size_bytes=rows.nbytes, digest=rows_digest(rows).hex()
    )
