"""The store of a run: its log and checkpoints outside the machine of its controller (ADR 128).

* ``log/<sequence>``: an entry of the log, created where there is none and never replaced: the
  record that begins a term, records of the journal, or the word that a checkpoint is complete;
* ``checkpoints/<iteration>-<term>/<file>``;
* ``metrics/<term>/<offset>``: the bytes of ``metrics.jsonl`` from there on;
* ``heads/<term>``: the newest head that the controller of a term has written: where to begin.

The log is the fence: a controller that begins creates the entry after the last one as that of its
term, and the next entry of its predecessor is refused. Whatever else is named by a term is replaced
by the controller of that term alone. Every name is known: heads have the numbers of terms without a
gap, and are found by bisection; nothing is listed. Entries before a head are removed but for those
that begin terms, which a thawed controller would create next.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter

from fullrank.common.durable import replace_bytes, replace_file, replace_text
from fullrank.common.errors import (
    CheckpointUnusable,
    ConfigError,
    Malformed,
    NotFound,
    StaleTerm,
    StorageFailed,
)
from fullrank.common.failpoints import reach
from fullrank.common.schema import Name, Ordinal, validated
from fullrank.runs.checkpoint import MANIFEST, STATE, read_manifest, saved
from fullrank.runs.ending import CAVEATS
from fullrank.runs.identity import CHECKPOINTS, CONFIGURATION, JOURNAL, STAMP, check_release
from fullrank.runs.journal import NO_UPDATES, SUFFIX, segments_in
from fullrank.runs.journal_format import decode_first, encode
from fullrank.runs.objects import open_objects
from fullrank.runs.record import METRICS

SMALL = (CONFIGURATION, "numerics.json", "verdicts.json", CAVEATS)
"""Small files of a run, which are replaced as a whole."""
CHUNK_BYTES = 4 * 2**20
"""Size from which a further object takes the metrics that follow."""
LOST = (
    "once it takes writes, start this controller again: the run goes on from the last stored entry"
)
"""Remedy of a write that failed."""
_LOG, _HEADS, _METRICS = "log", "heads", "metrics"
_SCRATCH, _PROBE = ".store", "probe"

_Folder: TypeAlias = Annotated[str, Field(pattern=r"^\d{6,18}-\d{6,18}$")]
_Segment: TypeAlias = Annotated[str, Field(pattern=r"^(\d{6,18}-\d{6,18})?$")]
_Chunk: TypeAlias = Annotated[str, Field(pattern=rf"^{_METRICS}/\d{{6,18}}/\d{{18}}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogHead:
    """Where a reader of the log begins, and what it needs beside the log."""

    sequence: Ordinal = 0
    """The first entry that it needs."""
    checkpoints: Mapping[_Folder, Ordinal] = field(default_factory=dict)
    """Folders of the checkpoints, oldest first, each with the first entry after it."""
    metrics: tuple[_Chunk, ...] = ()
    """Names of the objects with the metrics, in order."""

    @property
    def objects(self) -> set[str]:
        """Names of what it needs beside the log."""
        files = {f"{CHECKPOINTS}/{each}/{name}" for each in self.checkpoints for name in _FILES}
        return files | set(self.metrics)


_FILES = (STATE, MANIFEST)


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
    whole: bool = True
    """False until the store has all that the directory held with which it began."""


_HEADER = TypeAdapter(Header)


class SharedStore:
    """The store of the run in one directory.

    Args:
        place: A directory, or a URL (``open_objects``).
        run_dir: The run's directory.
        keep: Checkpoints to keep.

    Raises:
        ConfigError: There is no such kind of store.
    """

    def __init__(self, place: str, run_dir: Path, *, keep: int) -> None:
        self._objects, self._place, self._run_dir = open_objects(place), place, run_dir
        self._keep, self._lock = keep, Lock()
        self._own = self._last = Header(run="", release="", term=0, instance=0)
        self._head, self._next = LogHead(), 0
        self._openings = set[int]()
        self._files: dict[str, str] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """Time and size of each small file when it was stored."""
        self._filling: dict[str, list[bytes]] = {}
        """The records that are to be shipped, by segment."""

    def read(self) -> Header | None:
        """Read the log to its end.

        Returns:
            The facts of the last entry; None if there is none.

        Raises:
            CheckpointUnusable: An entry is damaged.
            StorageFailed: The store cannot be reached.
            VersionMismatch: Another minor release began the run.
        """
        missing = -1
        while (begin := self._read()) == self._next and self._last.term:
            if begin == missing:  # else it was removed by a controller that has a newer head
                raise CheckpointUnusable(
                    f"{self._place} holds no {_name(begin)}, with which the run goes on; restore "
                    "the store from a copy, or start anew with another store.url"
                )
            missing = begin
        return self._last if self._last.term else None

    def _read(self) -> int:
        """Read the entries from the newest head on; returns the number of the first of them."""
        shutil.rmtree(self._run_dir / _SCRATCH, ignore_errors=True)
        (self._run_dir / _SCRATCH / JOURNAL).mkdir(parents=True)
        self._openings.clear()
        _, newest = self._newest_head()
        if newest is not None:
            self._take(newest)
        begin = self._next = self._head.sequence
        self._follow()
        return begin

    def text(self, name: str) -> str:
        """A small file of the run that was read; empty if it has none of that name."""
        return self._files.get(name, "")

    def begin(self, run: str, *, digest: str, last: int, instance: int) -> int:
        """Begin a term of the run after what was read, and make the directory equal to the store.

        A store without a run takes what the directory holds, from its beginning if a controller
        was interrupted at that.

        Args:
            run: Id of the run.
            digest: Digest of the settings that make it this run.
            last: The last term that the directory knows; 0 if it is new.
            instance: Drawn for this controller.

        Returns:
            The term, above every earlier one.

        Raises:
            ConfigError: The store is no fence.
            StaleTerm: Another controller begins a term now.
            StorageFailed: The store cannot be reached or does not take it.
        """
        empty = not self._last.term or not self._last.whole
        adopts = empty and last > 0
        self._check_fence()
        while True:
            term, opened = max(last, self._last.term) + 1, len(self._openings)
            self._own = Header(
                run=run,
                release=str(STAMP["release"]),
                term=term,
                instance=instance,
                config_digest=digest,
                whole=not adopts,
            )
            if adopts:  # entries of an interrupted adoption stand before
                self._head = LogHead(sequence=self._next)
            if self._create(opens=True, files=self._changed() if empty else self._files):
                break
            self._follow()
            if len(self._openings) > opened:
                raise self._superseded(self._last.term)
        known, newest = self._newest_head()
        if newest is not None and newest.head is not None and newest.head.sequence >= self._next:
            raise self._superseded(newest.term)  # the entry was removed, and not the end of the log
        for number in range(known + 1, term + 1):
            self._put_head(number)
        self._take_all() if empty else self._restore()
        return term

    def add(self, segment: str, record: Iterable[bytes]) -> None:
        """Take a record of the journal, which is durable once it is shipped."""
        with self._lock:
            self._filling.setdefault(segment, []).extend(record)

    def ship(self) -> None:
        """Write the records that were taken, as an entry of the log for each segment, and files.

        Raises:
            StaleTerm: A later controller has begun a term; they are not part of the run.
            StorageFailed: The store does not take it.
        """
        with self._lock:
            filled, self._filling = self._filling, {}
            for segment, records in filled.items():
                self._write(b"".join(records), segment=segment, files=self._changed())
            if changed := self._changed():
                self._write(files=changed)

    @property
    def following(self) -> int:
        """The entry that is written next."""
        return self._next

    def checkpoint(self, since: int) -> None:
        """Store the directory's new checkpoints and the metrics; remove what they supersede.

        Records may be shipped meanwhile.

        Args:
            since: The first entry after the checkpoints.

        Raises:
            StaleTerm: A later controller has begun a term.
            StorageFailed: The store cannot be reached or does not take it.
        """
        checkpoints = self._store_checkpoints(since)
        whole = len(checkpoints) >= self._keep
        before, head = (
            self._head,
            LogHead(
                sequence=min(checkpoints.values()) if whole else self._head.sequence,
                checkpoints=checkpoints,
                metrics=self._store_metrics(),
            ),
        )
        with self._lock:
            self._changed()
            self._write(head=head, files=self._files)
            self._put_head(self._own.term)
        reach("store.checkpointed")
        entries = set(range(before.sequence, head.sequence)) - self._openings
        self._objects.remove([*map(_name, sorted(entries)), *sorted(before.objects - head.objects)])

    def confirm(self) -> None:
        """Return if no later controller has begun a term.

        Raises:
            StaleTerm: Another one has.
            StorageFailed: The store cannot be reached.
        """
        found = self._entry(_name(self._next))
        if found is not None and found[0].instance != self._own.instance:
            raise self._superseded(found[0].term)

    def _newest_head(self) -> tuple[int, Header | None]:
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

    def _follow(self) -> None:
        """Read the entries from the next one on."""
        while (found := self._entry(_name(self._next))) is not None:
            header, records = found
            self._take(header)
            if header.opens:
                self._openings.add(self._next)
            if header.segment:
                path = self._run_dir / _SCRATCH / JOURNAL / f"{header.segment}{SUFFIX}"
                with path.open("ab") as file:
                    file.write(records)
            self._next += 1

    def _take(self, header: Header) -> None:
        self._last, self._head = header, header.head or self._head
        self._files |= header.files

    def _entry(self, name: str) -> tuple[Header, bytes] | None:
        """The facts and the records of an object; None if there is none of that name."""
        try:
            content = self._objects.get(name)
        except NotFound:
            return None
        origin = f"{self._place}: {name}"
        facts, end = decode_first(content, origin=origin)
        check_release(facts, where=self._place)
        try:
            return validated(_HEADER, facts, origin=origin), content[end:]
        except Malformed as error:
            raise CheckpointUnusable(str(error)) from None

    def _create(self, records: bytes = b"", **facts: Any) -> bool:
        """Create the next entry; False if there is one of another controller.

        An entry whose answer was lost is found again: the instance is its writer's nonce.

        Raises:
            StorageFailed: The store does not take it.
        """
        content, failure = self._header(**facts) + records, None
        try:
            created = self._objects.create(_name(self._next), content)
        except StorageFailed as error:
            created, failure = False, error
        if not created:
            try:
                created = self._objects.get(_name(self._next)) == content
            except NotFound:
                if failure is not None:
                    raise StorageFailed(f"{failure}; {LOST}") from failure
        if created:
            if facts.get("opens"):
                self._openings.add(self._next)
            self._head = facts.get("head") or self._head
            self._next += 1
            reach("store.written")
        return created

    def _write(self, records: bytes = b"", **facts: Any) -> None:
        """Create the next entry.

        Raises:
            StaleTerm: A later controller has created it.
            StorageFailed: The store does not take it.
        """
        if not self._create(records, **facts):
            found = self._entry(_name(self._next))
            if found is not None and found[0].instance == self._own.instance:
                raise StorageFailed(f"{self._place} did not answer; {LOST}")
            raise self._superseded(found[0].term if found else self._own.term + 1)

    def _header(self, **facts: Any) -> bytes:
        header = _HEADER.dump_python(replace(self._own, **facts), mode="json")
        return b"".join(encode(self._next, header, NO_UPDATES, stored=False))

    def _put_head(self, number: int) -> None:
        content = self._header(head=self._head, files=self._files)
        self._objects.put(f"{_HEADS}/{number:06d}", content)

    def _changed(self) -> dict[str, str]:
        """The small files that have changed since they were stored."""
        changed = {}
        for name in SMALL:
            path = self._run_dir / name
            if path.exists():
                found = path.stat()
                state = (found.st_mtime_ns, found.st_size)
                if self._seen.get(name) != state:
                    changed[name], self._seen[name] = path.read_text(encoding="utf-8"), state
        self._files |= changed
        return changed

    def _store_checkpoints(self, since: int) -> dict[str, int]:
        """Store those that are not stored yet; all of them, each with the first entry after it."""
        checkpoints = dict[str, int]()
        for path in reversed(saved(self._run_dir / CHECKPOINTS)):
            try:
                folder = f"{path.name}-{read_manifest(path)['facts'].get('term', 0):06d}"
            except CheckpointUnusable:
                continue
            checkpoints[folder] = self._head.checkpoints.get(folder, since)
            if folder not in self._head.checkpoints:
                for name in _FILES:
                    content = (path / name).read_bytes()
                    self._objects.put(f"{CHECKPOINTS}/{folder}/{name}", content)
        return checkpoints

    def _store_metrics(self) -> tuple[str, ...]:
        """Store the metrics from the last object on, which may not be full; returns all names."""
        path, names = self._run_dir / METRICS, list(self._head.metrics[:-1])
        if path.exists():
            with path.open("rb") as file:
                file.seek(len(names) * CHUNK_BYTES)
                while content := file.read(CHUNK_BYTES):
                    offset = len(names) * CHUNK_BYTES
                    names.append(f"{_METRICS}/{self._own.term:06d}/{offset:018d}")
                    self._objects.put(names[-1], content)
        return tuple(names)

    def _check_fence(self) -> None:
        """Refuse a store that replaces what exists, as some that speak S3 do.

        Raises:
            ConfigError: It would let two controllers go on.
        """
        self._objects.put(_PROBE, b"")
        if self._objects.create(_PROBE, b""):
            raise ConfigError(
                f"{self._place} creates an object that exists, so that two controllers could go "
                "on; choose a store with conditional writes (If-None-Match)"
            )

    def _take_all(self) -> None:
        """Store what the directory holds."""
        for segment in segments_in(self._run_dir / JOURNAL):
            records = (self._run_dir / JOURNAL / f"{segment}{SUFFIX}").read_bytes()
            self._write(records, segment=segment)
        if saved(self._run_dir / CHECKPOINTS):
            self.checkpoint(since=self._head.sequence)
        if not self._own.whole:
            self._own = replace(self._own, whole=True)
            self._write(files=self._files)

    def _restore(self) -> None:
        """Make journal, checkpoints, metrics and small files of the directory those of the store.

        Raises:
            NotFound: An object is missing.
        """
        scratch = self._run_dir / _SCRATCH
        for folder in self._head.checkpoints:
            for name in _FILES:
                content = self._objects.get(f"{CHECKPOINTS}/{folder}/{name}")
                replace_bytes(scratch / CHECKPOINTS / folder.partition("-")[0] / name, content)
        with replace_file(self._run_dir / METRICS) as file:
            for name in self._head.metrics:
                file.write(self._objects.get(name))
        for name in (JOURNAL, CHECKPOINTS):
            shutil.rmtree(self._run_dir / name, ignore_errors=True)
            if (scratch / name).exists():
                (scratch / name).rename(self._run_dir / name)
        for name in SMALL:
            if name in self._files:
                replace_text(self._run_dir / name, self._files[name])
        shutil.rmtree(scratch)

    def _superseded(self, term: int) -> StaleTerm:
        return StaleTerm(
            f"{self._place}: another controller has begun term {term} of the run; nothing more is "
            "stored or published here"
        )


def _name(sequence: int) -> str:
    """Name of an entry of the log."""
    return f"{_LOG}/{sequence:012d}"
