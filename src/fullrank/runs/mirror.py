"""The mirror of a run: its committed state outside the machine of its controller (ADR 62).

A mirror holds what a controller needs to go on: settings, numerics, checkpoints and journal, and
the metrics up to the newest checkpoint. Its objects are

* ``terms/<term>`` and ``taken/<term>``: claims (``fullrank.runs.claims``);
* ``journal/<segment>/<iteration>``: a record, as in the local segment; ``journal/<segment>/begun``
  exists without records, too, because a later term withdraws iterations from its first one on;
* ``checkpoints/<iteration>/<file>``, complete with its manifest, which is written last;
* ``metrics/<offset>``: the bytes of ``metrics.jsonl`` from there on;
* small files under their own names.

An iteration is published once its record is stored and, after that, no later term is claimed. A
successor claims its term first and then reads the records. It therefore finds every iteration that
was published, whatever its predecessor still does.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fullrank.common.durable import replace_bytes, replace_text, sync_directory
from fullrank.common.errors import CheckpointUnusable, NotFound
from fullrank.common.formats import FORMAT
from fullrank.runs.checkpoint import MANIFEST, STATE, load, saved
from fullrank.runs.claims import Claims
from fullrank.runs.journal import SUFFIX, Record, records, segments_in, term_of
from fullrank.runs.objects import Objects, open_objects
from fullrank.runs.record import METRICS
from fullrank.runs.recovery import CHECKPOINTS, CONFIGURATION, IDENTITY, JOURNAL

SMALL = (CONFIGURATION, "numerics.json", "disputed.txt")
"""Small files of a run, which are replaced as a whole."""
_BEGUN = "begun"


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

    def claim(self, run: str, *, last: int) -> int:
        """Claim the next term for the directory, whose last one was ``last``; as ``Claims.claim``.

        A directory that has withdrawn iterations has a segment of the term after its last one.
        """
        segments = segments_in(self._run_dir / JOURNAL)
        return self.claims.claim(run, last=max([last, *map(term_of, segments)]))

    def mend(self) -> list[Path]:
        """Replace damaged checkpoints of the directory by their mirrored copies.

        A controller that went back to an older one would cut replay behind the rows that a standby
        needs, which begins with the newest one of the mirror.

        Returns:
            The replaced checkpoints.

        Raises:
            StorageFailed: The store cannot be reached.
        """
        mended = []
        for path in saved(self._run_dir / CHECKPOINTS):
            try:
                load(path)
            except CheckpointUnusable:
                with suppress(NotFound):
                    _fetch_checkpoint(self._objects, path)
                    mended.append(path)
        return mended

    def equalise(self) -> None:
        """Make the mirror equal to the directory, whose term was claimed.

        Raises:
            StorageFailed: The store cannot be reached or does not take it.
        """
        self._follow()
        chunks = [name for name in self._objects.names("metrics/") if name != _chunk(0)]
        self._mirrored = 0
        self._extend_metrics()
        self._objects.remove(chunks)
        self._mirrored = 0  # the term that begins now may cut the file before it extends it
        held = set(self._objects.names(f"{JOURNAL}/"))
        begun = {
            f"{JOURNAL}/{segment}/{_BEGUN}" for segment in segments_in(self._run_dir / JOURNAL)
        }
        for name in sorted(begun - held):
            self._objects.put(name, b"")
        for record in records(self._run_dir / JOURNAL):
            if (name := _name_of(record)) not in held:
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
        self._objects.put(_name_of(record), record.content)
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
                self._objects.put(_chunk(self._mirrored), added)
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
                self._objects.put(name, path.read_bytes())
                self._seen[name] = state

    def _add(self, path: Path) -> None:
        """Mirror a checkpoint, unless it is there."""
        manifest = (path / MANIFEST).read_bytes()
        folder = f"{CHECKPOINTS}/{path.name}"
        try:
            if self._objects.get(f"{folder}/{MANIFEST}") == manifest:
                return
            self._objects.remove([f"{folder}/{MANIFEST}"])
        except NotFound:
            pass
        self._objects.put(f"{folder}/{STATE}", (path / STATE).read_bytes())
        self._objects.put(f"{folder}/{MANIFEST}", manifest)

    def _prune(self) -> None:
        """Remove checkpoints and segments that the directory no longer has.

        Raises:
            StaleTerm: A later controller has claimed the run, and may have stored some of them.
        """
        kept = {f"{CHECKPOINTS}/{path.name}" for path in saved(self._run_dir / CHECKPOINTS)}
        kept |= {f"{JOURNAL}/{segment}" for segment in segments_in(self._run_dir / JOURNAL)}
        names = [*self._objects.names(f"{CHECKPOINTS}/"), *self._objects.names(f"{JOURNAL}/")]
        self.claims.confirm()  # only now: what was listed before is no later controller's
        self._objects.remove(name for name in names if name.rpartition("/")[0] not in kept)


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
    """
    objects = open_objects(place)
    claims = Claims(objects, place)
    claimed, run = claims.newest()
    if not claimed or not (objects.names(f"{JOURNAL}/") or objects.names(f"{CHECKPOINTS}/")):
        raise NotFound(f"{place} holds no committed iteration yet")
    term = claims.claim(run, last=max(claimed, claims.stored()))
    run_dir.mkdir(parents=True, exist_ok=True)
    _write_checkpoints(objects, run_dir / CHECKPOINTS)
    _write_journal(objects, run_dir / JOURNAL)
    with (run_dir / METRICS).open("wb") as file:
        for name in objects.names("metrics/"):
            offset = int(name.removeprefix("metrics/"))
            file.truncate(offset)
            file.seek(offset)
            file.write(objects.get(name))
    for name in set(SMALL).intersection(objects.names()):
        replace_bytes(run_dir / name, objects.get(name))
    claims.take()
    identity = {"format": FORMAT, "run": run, "term": term}
    replace_text(run_dir / IDENTITY, json.dumps(identity, indent=2) + "\n")
    return term


def _write_checkpoints(objects: Objects, folder: Path) -> None:
    """Write the mirrored checkpoints whose controller was not lost while they were mirrored."""
    for iteration, files in _by_folder(objects.names(f"{CHECKPOINTS}/")):
        if {STATE, MANIFEST} <= set(files):
            _fetch_checkpoint(objects, folder / iteration)


def _fetch_checkpoint(objects: Objects, path: Path) -> None:
    """Write a mirrored checkpoint to its place in the directory."""
    names = (STATE, MANIFEST)
    contents = [objects.get(f"{CHECKPOINTS}/{path.name}/{name}") for name in names]
    for name, content in zip(names, contents, strict=True):
        replace_bytes(path / name, content)


def _write_journal(objects: Objects, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for segment, files in _by_folder(objects.names(f"{JOURNAL}/")):
        with (folder / f"{segment}{SUFFIX}").open("wb") as file:
            for record in files:
                if record != _BEGUN:
                    file.write(objects.get(f"{JOURNAL}/{segment}/{record}"))
    sync_directory(folder)


def _by_folder(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Folders of the second level, and the names in each, in order."""
    folders = defaultdict[str, list[str]](list)
    for name in names:
        _, folder, file = name.split("/")
        folders[folder].append(file)
    return sorted(folders.items())


def _chunk(offset: int) -> str:
    return f"metrics/{offset:018d}"


def _name_of(record: Record) -> str:
    return f"{JOURNAL}/{record.segment}/{record.iteration:012d}"
