"""The mirror of a run: its committed state outside the machine of its controller (ADR 62).

A mirror holds what a controller needs to go on: settings, numerics, checkpoints and journal, and
the metrics up to the newest checkpoint; ``fullrank.runs.mirrored`` names its objects.

An iteration is published once its record is stored and, after that, no later term is claimed. A
successor claims its term first and then reads the records. It therefore finds every iteration that
was published, whatever its predecessor still does.
"""

import json
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.errors import CheckpointUnusable, NotFound
from fullrank.runs.checkpoint import MANIFEST, STATE, load, saved
from fullrank.runs.identity import (
    CHECKPOINTS,
    CONFIGURATION,
    IDENTITY,
    JOURNAL,
    STAMP,
    check_release,
)
from fullrank.runs.journal import (
    SUFFIX,
    Record,
    outlived,
    records,
    segments_in,
    survey,
)
from fullrank.runs.mirrored import (
    SMALL,
    Claims,
    Mirrored,
    checkpoint_name,
    file_name,
    folders_of,
    is_state,
    metrics_name,
    record_name,
)
from fullrank.runs.objects import open_objects
from fullrank.runs.record import METRICS
from fullrank.runs.recovery import reaches_back_to


class Mirror:
    """Keeps the mirror of one run directory.

    Args:
        place: A directory on another volume, or a URL (``open_objects``).
        run_dir: The run's directory.

    Attributes:
        claims: The claims of terms.

    Raises:
        ConfigError: There is no such kind of store.
    """

    def __init__(self, place: str, run_dir: Path) -> None:
        self._objects, self._run_dir = open_objects(place), run_dir
        self.claims = Claims(self._objects, place)
        self._seen: dict[str, tuple[int, int]] = {}
        """Time and size of each small file when it was mirrored."""
        self._mirrored = 0
        """Bytes of the metrics that need not be mirrored again."""

    def mend(self, *, keep: int) -> list[Path]:
        """Take from the mirror what the directory has lost, or holds damaged.

        Otherwise the directory, to which the mirror is made equal then, would be the end of both;
        and a controller that went back to an older checkpoint would cut replay behind the rows that
        a standby needs, which begins with the newest one of the mirror.

        Args:
            keep: Checkpoints to keep, which say how far the journal reaches back.

        Returns:
            Checkpoints and segments of the journal that were written.

        Raises:
            StorageFailed: The store cannot be reached.
        """
        mirrored = Mirrored(self._objects)
        if not segments_in(self._run_dir / JOURNAL):  # else its user may have removed them
            mirrored.write_files(self._run_dir)
        if not (self._run_dir / METRICS).exists():
            mirrored.write_metrics(self._run_dir / METRICS)
        return [*self._mend_checkpoints(mirrored), *self._mend_journal(mirrored, keep)]

    def _mend_checkpoints(self, mirrored: Mirrored) -> list[Path]:
        """Write those that the directory holds damaged, and those after its newest usable one."""
        folder, usable, damaged = self._run_dir / CHECKPOINTS, -1, set[str]()
        for path in saved(folder):
            try:
                usable = max(usable, load(path).iteration)
            except CheckpointUnusable:
                damaged.add(path.name)
        mended = []
        for name, stored in mirrored.checkpoints().items():
            if name in damaged or int(name) > usable:
                mirrored.write_checkpoint(stored, folder / name)
                mended.append(folder / name)
        return mended

    def _mend_journal(self, mirrored: Mirrored, keep: int) -> list[Path]:
        """Write the segments of which the mirror holds more records, except superfluous ones."""
        folder, stored = self._run_dir / JOURNAL, mirrored.segments()
        held = {segment.path.stem: segment.records for segment in survey(folder)}
        keep_from = reaches_back_to(saved(self._run_dir / CHECKPOINTS), keep=keep)
        superfluous = outlived({*held, *stored}, keep_from=keep_from)
        mended = []
        for segment in sorted(stored.keys() - superfluous):
            if segment not in held or len(stored[segment]) > held[segment]:
                path = folder / f"{segment}{SUFFIX}"
                mirrored.write_segment(segment, stored[segment], path)
                mended.append(path)
        return mended

    def equalise(self) -> None:
        """Make the mirror equal to the directory, whose term was claimed.

        Raises:
            StaleTerm: A later controller has claimed the run.
            StorageFailed: The store cannot be reached or does not take it.
        """
        self._follow()
        first = metrics_name(self.claims.term)
        later = self._objects.names(f"{first.rpartition('/')[0]}/")
        self._mirrored = 0
        self._extend_metrics()
        self._objects.remove(name for name in later if name != first)
        self._mirrored = 0  # the term that begins now may cut the file before it extends it
        held = set(self._objects.names(f"{JOURNAL}/"))
        for record in records(self._run_dir / JOURNAL):
            if (name := record_name(record)) not in held:
                self._objects.put(name, record.content)
        for path in saved(self._run_dir / CHECKPOINTS):
            self._add(path)
        self._prune()

    def store(self, record: Record) -> None:
        """Mirror an iteration that the local journal holds; it may be published afterwards.

        Raises:
            StaleTerm: A later controller has claimed the run, and may not know the iteration.
            StorageFailed: The store does not take it; the iteration is not to be published.
        """
        self._follow()
        self._objects.put(record_name(record), record.content)
        self.claims.confirm()

    def checkpoint(self, path: Path) -> None:
        """Mirror a new checkpoint and the metrics before it, and remove superseded files.

        Raises:
            StaleTerm: A later controller has claimed the run.
            StorageFailed: The store cannot be reached or does not take it.
        """
        self.claims.confirm()
        self._extend_metrics()
        self._add(path)
        self._prune()

    def _extend_metrics(self) -> None:
        path = self._run_dir / METRICS
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._mirrored)
            if added := file.read():
                self._objects.put(metrics_name(self.claims.term, self._mirrored), added)
                self._mirrored += len(added)

    def _follow(self) -> None:
        """Mirror the small files that have changed."""
        for name in SMALL:
            path = self._run_dir / name
            if not path.exists():
                continue
            found = path.stat()
            state = (found.st_mtime_ns, found.st_size)
            if self._seen.get(name) != state:
                self._objects.put(file_name(self.claims.term, name), path.read_bytes())
                self._seen[name] = state

    def _add(self, path: Path) -> None:
        """Mirror a checkpoint, unless it is there or damaged."""
        try:
            folder = checkpoint_name(path)
        except CheckpointUnusable:
            return
        manifest = (path / MANIFEST).read_bytes()
        try:
            if self._objects.get(f"{folder}/{MANIFEST}") == manifest:
                return
            self._objects.remove([f"{folder}/{MANIFEST}"])
        except NotFound:
            pass
        self._objects.put(f"{folder}/{STATE}", (path / STATE).read_bytes())
        self._objects.put(f"{folder}/{MANIFEST}", manifest)

    def _prune(self) -> None:
        """Remove what the directory no longer has, and what earlier terms wrote of the rest.

        Raises:
            StaleTerm: A later controller has claimed the run, and may have stored some of it.
        """
        own = (metrics_name(self.claims.term), file_name(self.claims.term, CONFIGURATION))
        kept = {name.rpartition("/")[0] for name in own}
        kept |= {f"{JOURNAL}/{segment}" for segment in segments_in(self._run_dir / JOURNAL)}
        kept |= {f"{CHECKPOINTS}/{path.name}" for path in saved(self._run_dir / CHECKPOINTS)}
        names = self._objects.names()
        self.claims.confirm()  # only now: what was listed before is no later controller's
        self._objects.remove(
            name for name in names if is_state(name) and kept.isdisjoint(folders_of(name))
        )


def take_over(place: str, run_dir: Path) -> int:
    """Claim a mirrored run, and write it into a directory that holds none.

    Args:
        place: As of ``Mirror``.
        run_dir: The new run directory; made if missing.

    Returns:
        The claimed term. The controller that begins in the directory claims a later one.

    Raises:
        NotFound: The mirror holds no committed iteration.
        StaleTerm: Another controller claims the run now.
        StorageFailed: The store cannot be reached.
        VersionMismatch: Another minor release began the run.
    """
    objects = open_objects(place)
    claims = Claims(objects, place)
    claimed, facts = claims.newest()
    if not claimed or not claims.filled():
        raise NotFound(f"{place} holds no committed iteration yet")
    check_release(facts, where=place)
    run = str(facts["run"])
    term = claims.claim(run, last=max(claimed, claims.stored()))
    run_dir.mkdir(parents=True, exist_ok=True)
    mirrored = Mirrored(objects)
    for name, folder in mirrored.checkpoints().items():
        mirrored.write_checkpoint(folder, run_dir / CHECKPOINTS / name)
    for segment, stored in mirrored.segments().items():
        mirrored.write_segment(segment, stored, run_dir / JOURNAL / f"{segment}{SUFFIX}")
    mirrored.write_metrics(run_dir / METRICS)
    mirrored.write_files(run_dir)
    claims.mark_taken()
    identity = {**STAMP, "run": run, "term": term}
    replace_text(run_dir / IDENTITY, json.dumps(identity, indent=2) + "\n")
    return term
