"""The store of a run: its log and checkpoints outside the machine of its controller (ADR 128).

* ``log/<sequence>`` and ``heads/<term>``: the log, which is the fence (``runs.log``);
* ``checkpoints/<iteration>-<term>/<file>``;
* ``metrics/<term>/<offset>``: the bytes of ``metrics.jsonl`` from there on;
* ``rows/<first>-<last>-<term>``: rows of replay from which the checkpoints draw.

Whatever is named by a term is replaced by the controller of that term alone. Entries before a head
are removed but for those that begin terms, which a thawed controller would create next.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np

from fullrank.common.durable import replace_bytes, replace_file, replace_text
from fullrank.common.errors import CheckpointUnusable, ConfigError, Corrupted, NotFound
from fullrank.common.failpoints import reach
from fullrank.common.types import JSON, FloatArray
from fullrank.replay.staging import rows_digest
from fullrank.runs.checkpoint import read_manifest, saved
from fullrank.runs.ending import CAVEATS, add_caveats
from fullrank.runs.identity import CHECKPOINTS, CONFIGURATION, JOURNAL, STAMP
from fullrank.runs.journal import SUFFIX, segments_in
from fullrank.runs.log import (
    FILES,
    METRICS,
    ROWS,
    Header,
    Log,
    LogHead,
    RowSegment,
    end_of,
    entry_name,
    segment_of,
)
from fullrank.runs.objects import SCRATCH, open_objects
from fullrank.runs.record import METRICS as METRICS_FILE
from fullrank.runs.verdicts import FILE as VERDICTS
from fullrank.runs.verdicts import add_verdicts

SMALL = (CONFIGURATION, "numerics.json", VERDICTS, CAVEATS)
"""Small files of a run, which are replaced as a whole."""
CHUNK_BYTES = 4 * 2**20
"""Size from which a further object takes the metrics, or the rows, that follow."""
MOST_SEGMENTS = 512
"""Full objects with rows, at most: those of a larger table are larger."""
_SCRATCH, _PROBE = ".store", "probe"


class SharedStore:
    """The store of the run in one directory.

    Args:
        place: A directory, or a URL (``open_objects``).
        run_dir: The run's directory.
        keep: Checkpoints to keep.

    Attributes:
        log: Its log, which is read before a term begins.

    Raises:
        ConfigError: There is no such kind of store.
    """

    def __init__(self, place: str, run_dir: Path, *, keep: int) -> None:
        self._objects, self._place, self._run_dir = open_objects(place), place, run_dir
        self._keep, self._lock = keep, Lock()
        self.log = Log(self._objects, place, restart=self._clear, take=self._take_records)
        self._filling: dict[str, list[bytes]] = {}
        """The records that are to be shipped, by segment."""
        self._planned: tuple[RowSegment, ...] = ()
        """Rows from which the checkpoints draw that are being stored."""
        self._metrics: tuple[str, ...] = ()
        """Objects with the metrics that are being stored, after those that are full."""

    def _clear(self) -> None:
        shutil.rmtree(self._run_dir / _SCRATCH, ignore_errors=True)
        (self._run_dir / _SCRATCH / JOURNAL).mkdir(parents=True)

    def _take_records(self, segment: str, records: bytes) -> None:
        path = self._run_dir / _SCRATCH / JOURNAL / f"{segment}{SUFFIX}"
        with path.open("ab") as file:
            file.write(records)

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
        log = self.log
        empty = not log.last.term or not log.last.whole
        adopts = empty and last > 0
        self._check_fence()
        while True:
            term, opened = max(last, log.last.term) + 1, len(log.openings)
            log.own = Header(
                run=run,
                release=str(STAMP["release"]),
                term=term,
                instance=instance,
                config_digest=digest,
                whole=not adopts,
            )
            if adopts:  # entries of an interrupted adoption stand before
                log.strays |= self._superseded_by(LogHead(sequence=log.next))
                log.head, log.rows = LogHead(sequence=log.next), ()
            if log.create(opens=True, files=self._changed() if empty else log.files):
                break
            log.follow()
            if len(log.openings) > opened:
                raise log.superseded(log.last.term)
        for number in range(log.check_end() + 1, term + 1):
            log.put_head(number)
        self._objects.remove([SCRATCH])
        self._take_all() if empty else self._restore()
        return term

    def add(self, segment: str, record: Iterable[bytes]) -> None:
        """Take a record of the journal, which is durable once it is shipped."""
        with self._lock:
            self._filling.setdefault(segment, []).extend(record)

    def ship(self, first: int = 0, rows: FloatArray | None = None) -> None:
        """Write the records that were taken, as an entry of the log for each segment, and files.

        Args:
            first: Position of the first row.
            rows: Rows from which the next iteration draws, with the last records; they replace
                those that were stored from ``first`` on.

        Raises:
            StaleTerm: A later controller has begun a term; they are not part of the run.
            StorageFailed: The store does not take it.
        """
        with self._lock:
            filled, self._filling = self._filling, {}
            if not filled and rows is not None and len(rows):  # another call has taken the records
                self.log.write(rows.tobytes(), rows=segment_of(first, rows))
            for segment, records in filled.items():
                content, facts = b"".join(records), {}
                if rows is not None and len(rows) and segment == [*filled][-1]:
                    content, facts = content + rows.tobytes(), {"rows": segment_of(first, rows)}
                self.log.write(content, segment=segment, files=self._changed(), **facts)
        self.keep()

    def keep(self) -> None:
        """Write small files that have changed, as an entry; raises like ``ship``."""
        with self._lock:
            if changed := self._changed():
                self.log.write(files=changed)

    def ship_rows(self, first: int, rows: FloatArray) -> None:
        """Write rows from a position on as an entry of their own; they replace those after it.

        Raises:
            StaleTerm: A later controller has begun a term.
            StorageFailed: The store does not take it.
        """
        with self._lock:
            self.log.write(rows.tobytes(), rows=segment_of(first, rows))

    def keep_rows(self, head: int) -> None:
        """Forget the segments that end after a position: the run writes others there."""
        with self._lock:
            self.log.rows = tuple(each for each in self.log.rows if each.last <= head)

    def read_rows(self, segment: RowSegment) -> FloatArray:
        """Read the rows of a segment, shape (n, row_size).

        Raises:
            Corrupted: They are missing or not those that were stored; the message names the object.
            StorageFailed: The store cannot be reached.
        """
        where = f"{self._place}: {segment.name}"
        try:
            content = self._objects.get(segment.name)[-segment.size_bytes :]
        except NotFound:
            raise Corrupted(f"{where} is missing") from None
        count = segment.last - segment.first
        if len(content) == segment.size_bytes and segment.size_bytes % (4 * count) == 0:
            rows = np.frombuffer(content, "<f4").reshape(count, -1)
            if rows_digest(rows).hex() == segment.digest:
                return rows
        raise Corrupted(f"{where} does not hold what was stored")

    def plan(
        self, *, head: int, tail: int = 0, drawn: int = 0, row_bytes: int = 1
    ) -> Sequence[tuple[int, int]]:
        """Begin to store the directory's new checkpoints: say in the log what is written next.

        Args:
            head: Position from which the newest checkpoint resumes.
            tail: Oldest position that this term has found in replay.
            drawn: Rows from which an iteration draws, at most.
            row_bytes: Size of a row.

        Returns:
            First and last positions of the rows that are to be stored by ``put_rows``.

        Raises:
            StaleTerm: A later controller has begun a term.
            StorageFailed: The store cannot be reached or does not take it.
        """
        most = max(CHUNK_BYTES, drawn * row_bytes // MOST_SEGMENTS) // row_bytes
        step = max(1, min(most, drawn // 8))
        heads = [facts.get("replay_head", head) for _, _, facts in self._checkpoints()]
        oldest, kept = min([head, *heads]) - drawn, list[RowSegment]()
        for each in self.log.rows:
            if not each.is_own or each.last > head or each.last < each.first + step:
                break
            if each.last > oldest:
                kept.append(each)
        least = max(end_of(kept), min(head, max(tail, head - drawn)))
        bounds = [*range(least, head, step), head]
        self._planned, self._metrics = tuple(kept), self._metrics_due()
        ranges, stored = list(pairwise(bounds)), self.log.head.checkpoints
        folders = [folder for folder, _, _ in self._checkpoints() if folder not in stored]
        names = [
            *(self._row_name(*each) for each in ranges),
            *(f"{CHECKPOINTS}/{folder}/{file}" for folder in folders for file in FILES),
            *self._metrics,
        ]
        with self._lock:
            self.log.write(strays=tuple(names))
        reach("store.planned")
        return ranges

    def put_rows(self, first: int, rows: FloatArray) -> None:
        """Store planned rows, which come in order."""
        segment = segment_of(first, rows)
        name = self._row_name(segment.first, segment.last)
        self._objects.put(name, rows.tobytes())
        self._planned = (*self._planned, replace(segment, name=name))
        reach("store.rows")

    def _row_name(self, first: int, last: int) -> str:
        return f"{ROWS}/{first:018d}-{last:018d}-{self.log.own.term:06d}"

    def checkpoint(self, since: int) -> None:
        """Store the planned checkpoints and the metrics; remove what they supersede.

        Records may be shipped meanwhile.

        Args:
            since: The first entry after the checkpoints.

        Raises:
            StaleTerm: A later controller has begun a term.
            StorageFailed: The store cannot be reached or does not take it.
        """
        log, checkpoints = self.log, self._store_checkpoints(since)
        self._store_metrics()
        whole = len(checkpoints) >= self._keep
        head = LogHead(
            sequence=min(checkpoints.values()) if whole else log.head.sequence,
            checkpoints=checkpoints,
            metrics=(*log.head.metrics[:-1], *self._metrics),
            rows=self._planned,
        )
        with self._lock:
            superseded, files = self._superseded_by(head), log.files | self._changed()
            log.write(head=head, files=files, strays=tuple(sorted(superseded)))
            log.put_head(log.own.term)
            log.strays.clear()
        reach("store.checkpointed")
        self._objects.remove(sorted(superseded))

    def _superseded_by(self, head: LogHead) -> set[str]:
        """What nobody needs once a head is written: the fence and what it names stay."""
        log = self.log
        entries = set(map(entry_name, range(log.head.sequence, head.sequence)))
        objects = log.strays | entries | log.head.objects
        return objects - head.objects - set(map(entry_name, log.openings))

    def _changed(self) -> dict[str, str]:
        """The small files that are not in the log as they are."""
        paths = {name: self._run_dir / name for name in SMALL}
        files = {name: path.read_text("utf-8") for name, path in paths.items() if path.exists()}
        return {name: text for name, text in files.items() if self.log.files.get(name) != text}

    def _checkpoints(self) -> Iterator[tuple[str, Path, JSON]]:
        """The checkpoints of the directory, oldest first: folder in the store, path and facts."""
        for path in reversed(saved(self._run_dir / CHECKPOINTS)):
            try:
                facts = read_manifest(path)["facts"]
            except CheckpointUnusable:
                continue
            yield f"{path.name}-{facts.get('term', 0):06d}", path, facts

    def _store_checkpoints(self, since: int) -> dict[str, int]:
        """Store those that are not stored yet; all of them, each with the first entry after it."""
        checkpoints, stored = dict[str, int](), self.log.head.checkpoints
        for folder, path, _ in self._checkpoints():
            checkpoints[folder] = stored.get(folder, since)
            if folder not in stored:
                for name in FILES:
                    content = (path / name).read_bytes()
                    self._objects.put(f"{CHECKPOINTS}/{folder}/{name}", content)
        return checkpoints

    def _metrics_due(self) -> tuple[str, ...]:
        """Names of the objects with the metrics from the last one on, which may not be full."""
        path, full = self._run_dir / METRICS_FILE, len(self.log.head.metrics[:-1])
        size = path.stat().st_size if path.exists() else 0
        offsets = range(full * CHUNK_BYTES, size, CHUNK_BYTES)
        return tuple(f"{METRICS}/{self.log.own.term:06d}/{offset:018d}" for offset in offsets)

    def _store_metrics(self) -> None:
        if self._metrics:
            with (self._run_dir / METRICS_FILE).open("rb") as file:
                file.seek(len(self.log.head.metrics[:-1]) * CHUNK_BYTES)
                for name in self._metrics:
                    self._objects.put(name, file.read(CHUNK_BYTES))

    def _check_fence(self) -> None:
        """Refuse a store that replaces what exists, as some that speak S3 do.

        Raises:
            ConfigError: It would let two controllers go on.
        """
        if self._objects.create(_PROBE, b"") and self._objects.create(_PROBE, b""):
            raise ConfigError(
                f"{self._place} creates an object that exists, so that two controllers could go "
                "on; choose a store with conditional writes (If-None-Match)"
            )

    def _take_all(self) -> None:
        """Store what the directory holds; the rows that replay has follow with a checkpoint."""
        for segment in segments_in(self._run_dir / JOURNAL):
            records = (self._run_dir / JOURNAL / f"{segment}{SUFFIX}").read_bytes()
            self.log.write(records, segment=segment)
        if saved(self._run_dir / CHECKPOINTS):
            since = self.log.head.sequence
            self.plan(head=0)
            self.checkpoint(since)
        if not self.log.own.whole:
            self.log.own = replace(self.log.own, whole=True)
            self.log.write(files=self.log.files)

    def _restore(self) -> None:
        """Make journal, checkpoints, metrics and small files of the directory those of the store.

        Verdicts and caveats that the store does not have yet are kept.

        Raises:
            NotFound: An object is missing.
        """
        scratch, head, files = self._run_dir / _SCRATCH, self.log.head, self.log.files
        for folder in head.checkpoints:
            for name in FILES:
                content = self._objects.get(f"{CHECKPOINTS}/{folder}/{name}")
                replace_bytes(scratch / CHECKPOINTS / folder.partition("-")[0] / name, content)
        with replace_file(self._run_dir / METRICS_FILE) as file:
            for name in head.metrics:
                file.write(self._objects.get(name))
        for name in (JOURNAL, CHECKPOINTS):
            shutil.rmtree(self._run_dir / name, ignore_errors=True)
            if (scratch / name).exists():
                (scratch / name).rename(self._run_dir / name)
        add = {VERDICTS: add_verdicts, CAVEATS: add_caveats}
        for name in SMALL:
            if name in files and name in add:
                add[name](self._run_dir, files[name])
            elif name in files:
                replace_text(self._run_dir / name, files[name])
        shutil.rmtree(scratch)
