"""The contents of a mirror: the names of its objects, and their way into a run directory.

* ``terms/<term>`` and ``taken/<term>``: claims (``fullrank.runs.claims``);
* ``journal/<segment>/<iteration>``: a record, as in the local segment; ``journal/<segment>/begun``
  exists without records, too, because a later term withdraws iterations from its first one on;
* ``checkpoints/<iteration>-<term>/<file>``, complete with its manifest, which is written last;
* ``metrics/<term>/<offset>``: the bytes of ``metrics.jsonl`` from there on;
* ``files/<term>/<name>``: a small file.

All names contain a term, so that a controller that was frozen while another one followed it
overwrites nothing of its successor, however late it writes. Of objects that differ in their term
alone readers take the latest.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from fullrank.common.durable import replace_bytes, replace_file
from fullrank.runs.caveats import CAVEATS, DISPUTED
from fullrank.runs.checkpoint import MANIFEST, STATE, read_manifest
from fullrank.runs.identity import CHECKPOINTS, CONFIGURATION, JOURNAL
from fullrank.runs.journal import Record
from fullrank.runs.objects import Objects

SMALL = (CONFIGURATION, "numerics.json", DISPUTED, "verdicts.json", CAVEATS)
"""Small files of a run, which are replaced as a whole."""
BEGUN = "begun"
"""Last part of the name of the object that every mirrored segment has."""
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
            records[segment] += [] if record == BEGUN else [record]
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
    return f"{JOURNAL}/{record.segment}/{record.iteration:012d}"


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
