"""The contents of a mirror: the names of its objects, and their way into a run directory.

* ``terms/<term>`` and ``taken/<term>``: ``Claims``, so that one controller of all machines
  continues the run;
* ``journal/<segment>/<iteration>``: a record, as in the local segment, the one that condemns being
  ``condemned``;
* ``checkpoints/<iteration>-<term>/<file>``, complete with its manifest, which is written last;
* ``metrics/<term>/<offset>``: the bytes of ``metrics.jsonl`` from there on;
* ``files/<term>/<name>``: a small file.

All names contain a term, so that a controller that was frozen while another one followed it
overwrites nothing of its successor, however late it writes. Of objects that differ in their term
alone readers take the latest.

``terms/000002`` is created, never overwritten; who creates it is the controller of that term.
``taken/000002`` says that a standby of that term has read the run: it may publish again what it
found, also what its predecessor had stored and not published. No older directory goes on then.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fullrank.common.durable import replace_bytes, replace_file
from fullrank.common.errors import (
    CheckpointUnusable,
    Malformed,
    NotFound,
    RunDirectoryInUse,
    StaleTerm,
)
from fullrank.common.foreign import parse_json
from fullrank.common.types import JSON
from fullrank.runs.checkpoint import MANIFEST, STATE, read_manifest
from fullrank.runs.ending import CAVEATS
from fullrank.runs.identity import CHECKPOINTS, CONFIGURATION, JOURNAL, STAMP
from fullrank.runs.journal import Record, order_of
from fullrank.runs.objects import Objects

SMALL = (CONFIGURATION, "numerics.json", "verdicts.json", CAVEATS)
"""Small files of a run, which are replaced as a whole."""
_METRICS, _FILES = "metrics", "files"
_FOLDERS = (JOURNAL, CHECKPOINTS, _METRICS, _FILES)


class Mirrored:
    """What a mirror holds now.

    Args:
        objects: Its objects, which are listed once.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects, self._names = objects, objects.names()

    def checkpoints(self) -> dict[str, str]:
        """Folder of the latest term of each whole checkpoint, by its directory's name."""
        folders = defaultdict[str, set[str]](set)
        for _, folder, file in self._below(CHECKPOINTS):
            folders[folder].add(file)
        whole = sorted(folder for folder, files in folders.items() if {STATE, MANIFEST} <= files)
        return {folder.partition("-")[0]: folder for folder in whole}

    def segments(self) -> dict[str, list[str]]:
        """Names of the records of each segment, in order."""
        records = defaultdict[str, list[str]](list)
        for _, segment, record in self._below(JOURNAL):
            records[segment].append(record)
        return records

    def _below(self, folder: str) -> Iterable[list[str]]:
        """Parts of the names below a folder, in order."""
        return (parts for name in self._names if (parts := name.split("/"))[0] == folder)

    def write_checkpoint(self, folder: str, path: Path) -> None:
        """Write a checkpoint to its place in a directory.

        Raises:
            NotFound: It was removed meanwhile.
        """
        names = (STATE, MANIFEST)
        contents = [self._objects.get(f"{CHECKPOINTS}/{folder}/{name}") for name in names]
        for name, content in zip(names, contents, strict=True):
            replace_bytes(path / name, content)

    def write_segment(self, segment: str, records: Iterable[str], path: Path) -> None:
        """Write records of a segment of the journal to its place in a directory.

        Raises:
            NotFound: One was removed meanwhile.
        """
        with replace_file(path) as file:
            for record in records:
                file.write(self._objects.get(f"{JOURNAL}/{segment}/{record}"))

    def write_metrics(self, path: Path) -> None:
        """Write the metrics of the latest term, if there are any."""
        chunks = defaultdict[str, dict[int, str]](dict)
        for parts in self._below(_METRICS):
            chunks["/".join(parts[1:-1])][int(parts[-1])] = "/".join(parts)
        if not chunks:
            return
        with replace_file(path) as file:
            for offset, name in sorted(chunks[max(chunks)].items()):
                file.truncate(offset)
                file.seek(offset)
                file.write(self._objects.get(name))

    def write_files(self, run_dir: Path) -> None:
        """Write those small files that the directory lacks."""
        latest = {parts[-1]: "/".join(parts) for parts in self._below(_FILES)}
        for name in SMALL:
            if name in latest and not (run_dir / name).exists():
                replace_bytes(run_dir / name, self._objects.get(latest[name]))


def is_state(name: str) -> bool:
    """Return whether an object belongs to the run's state; others are claims, or no part of it."""
    return name.partition("/")[0] in _FOLDERS


def folders_of(name: str) -> tuple[str, str]:
    """Return the folder of an object, and that of all terms where it is one of a checkpoint."""
    folder = name.rpartition("/")[0]
    return folder, folder.partition("-")[0]


def record_name(record: Record) -> str:
    """Name of a record of the journal."""
    return f"{JOURNAL}/{record.segment}/{record.name}"


def checkpoint_name(path: Path) -> str:
    """Name of the folder of a checkpoint, by the term that saved it.

    Raises:
        CheckpointUnusable: It is damaged.
    """
    return f"{CHECKPOINTS}/{path.name}-{read_manifest(path)['facts'].get('term', 0):06d}"


def metrics_name(term: int, offset: int = 0) -> str:
    """Name of the metrics from an offset on."""
    return f"{_METRICS}/{term:06d}/{offset:018d}"


def file_name(term: int, name: str) -> str:
    """Name of a small file."""
    return f"{_FILES}/{term:06d}/{name}"


_TERMS, _TAKEN = "terms/", "taken/"


class Claims:
    """The claims in a mirror.

    Args:
        objects: The mirror's objects.
        place: Where they are, for messages.

    Attributes:
        term: The term that this process has claimed; 0 before.
    """

    def __init__(self, objects: Objects, place: str) -> None:
        self._objects, self._place = objects, place
        self.term = 0

    def newest(self) -> tuple[int, JSON]:
        """The highest claimed term and its facts, ``run`` among them; 0 if there is none.

        Raises:
            CheckpointUnusable: It is damaged.
        """
        names = self._objects.names(_TERMS)
        if not names:
            return 0, {"run": ""}
        try:
            facts = parse_json(self._objects.get(names[-1]), origin=names[-1])
            return int(names[-1].removeprefix(_TERMS)), {**facts, "run": str(facts["run"])}
        except (Malformed, ValueError, KeyError, TypeError, NotFound) as error:
            raise CheckpointUnusable(f"{self._place}: {names[-1]} is damaged: {error}") from None

    def claim(self, run: str, *, last: int) -> int:
        """Claim the next term of a run; from then on no earlier controller publishes anything.

        Args:
            run: Id of the run.
            last: The last term that the claiming directory knows; 0 if it is new.

        Returns:
            The term, above every one that was claimed.

        Raises:
            StaleTerm: The run went on elsewhere since, or another controller claims it now.
            RunDirectoryInUse: The mirror is another run's.
        """
        claimed, facts = self.newest()
        owner = facts["run"]
        if owner != run and self.filled():
            raise RunDirectoryInUse(
                f"{self._place} mirrors another run, {owner}; choose another checkpoint.mirror, or "
                "continue that run with `fullrank serve controller --standby`"
            )
        self._check(last)
        self.term = max(claimed, last) + 1
        content = json.dumps({**STAMP, "run": run}).encode()
        if not self._objects.create(f"{_TERMS}{self.term:06d}", content):
            raise self._superseded(self.term)
        self._check(last)  # again: what was stored before the claim was published, perhaps
        names = self._objects.names(_TERMS)
        self._objects.remove(name for name in names if name < f"{_TERMS}{claimed:06d}")
        return self.term

    def confirm(self) -> None:
        """Return if no later controller has claimed the run.

        Raises:
            StaleTerm: Another one has; this controller may publish no more.
        """
        names = self._objects.names(_TERMS)
        if names and names[-1] > f"{_TERMS}{self.term:06d}":
            raise self._superseded(int(names[-1].removeprefix(_TERMS)))

    def mark_taken(self) -> None:
        """Say that the claimed run was read, and goes on in another directory."""
        before = self._objects.names(_TAKEN)
        self._objects.put(f"{_TAKEN}{self.term:06d}", b"")
        self._objects.remove(name for name in before if name < f"{_TAKEN}{self.term:06d}")

    def stored(self) -> int:
        """The highest term with a stored iteration or checkpoint; 0 if none is stored."""
        folders = {
            name.split("/")[1]
            for kind in (JOURNAL, CHECKPOINTS)
            for name in self._objects.names(f"{kind}/")
        }
        return max((order_of(folder)[0] for folder in folders), default=0)

    def filled(self) -> bool:
        """True if the mirror holds committed iterations."""
        return any(self._objects.names(f"{folder}/") for folder in (JOURNAL, CHECKPOINTS))

    def _check(self, last: int) -> None:
        taken = [int(name.removeprefix(_TAKEN)) for name in self._objects.names(_TAKEN)]
        if (newer := max([self.stored(), *taken])) > last:
            raise StaleTerm(
                f"{self._place} has a state of term {newer}, and this run directory ends with term "
                f"{last}: the run went on elsewhere; to continue it here, use `fullrank serve "
                "controller --standby` with a new directory"
            )

    def _superseded(self, claimed: int) -> StaleTerm:
        return StaleTerm(
            f"{self._place}: another controller has claimed term {claimed} of the run; nothing "
            "more is published here"
        )
