"""Snapshots: the state of a run at one moment, copied while it goes on; archives: one in a file.

No writer is stopped. Files are copied in such an order that together they are what a crash of the
run would have left: what an iteration depends on is copied no earlier than the iteration itself.
Checkpoints come first, since the journal and the table only lead away from them; then what was
published; then rows; then the journal, which holds every published iteration. Rows that are evicted
meanwhile are those that no later iteration draws from.

An archive is a ZIP file with the files of a run and, first of all, a list of their sizes and
checksums. Archives are not trusted: only names that a run has are written, never outside the new
directory, and no more bytes than were announced and fit on the disk.
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from blake3 import blake3

from fullrank.common.durable import replace_file
from fullrank.common.errors import (
    CheckpointUnusable,
    Corrupted,
    FullrankError,
    Malformed,
    OutOfRange,
)
from fullrank.common.foreign import FORMAT, Bounds, check_format, parse_json, regular
from fullrank.common.types import JSON
from fullrank.replay.fence import FILE as FENCE
from fullrank.replay.mapped_table import TableFile, copy_table
from fullrank.replay.store import table_file
from fullrank.runs import checkpoint
from fullrank.runs.ending import CAVEATS
from fullrank.runs.evaluations import EVALUATIONS
from fullrank.runs.events import DIRECTORY as HISTORY
from fullrank.runs.events import whole_bytes
from fullrank.runs.identity import CHECKPOINTS, CONFIGURATION, HEADS, IDENTITY, JOURNAL, run_of
from fullrank.runs.record import METRICS, published
from fullrank.runs.recovery import Recovery, examine, standing

REPLAY = "replay"
"""Subdirectory of a run's directory with its tables."""
FACTS = (CONFIGURATION, IDENTITY, "numerics.json", "verdicts.json", CAVEATS)
"""Files that are replaced as a whole; all but the first two may be missing."""
LINES = (METRICS, EVALUATIONS)
"""Files to which lines are appended."""
ATTEMPTS = 5
"""Attempts to copy a run that prunes the files being copied, or begins another term."""


def take_snapshot(run_dir: Path, into: Path) -> Recovery:
    """Copy a run, and check every checksum of the copy.

    Args:
        run_dir: The run's directory, which services may be writing.
        into: A directory that does not exist yet.

    Returns:
        What a resumed copy starts with; it has no faults.

    Raises:
        CheckpointUnusable: The run has no committed iteration, or its files are damaged, or they
            changed faster than they could be read.
    """
    reason = ""
    for _ in range(ATTEMPTS):
        try:
            before = (run_dir / IDENTITY).read_bytes()
            _copy(run_dir, into)
            found = inspect(into)
        except (FileNotFoundError, OutOfRange) as error:  # pruned, or the table was opened anew
            reason = str(error)
        else:
            if not found.faults and (run_dir / IDENTITY).read_bytes() == before:
                return found
            reason = "; ".join(found.faults) or "another controller has taken it over"
        shutil.rmtree(into, ignore_errors=True)
    raise CheckpointUnusable(f"{run_dir} cannot be copied: {reason}")


def inspect(run_dir: Path) -> Recovery:
    """Check every checksum of a copied run, its transitions included.

    Raises:
        CheckpointUnusable: It holds no committed iteration.
    """
    found = examine(run_dir, published=published(run_dir))
    if not found.committed:
        raise CheckpointUnusable("it has no committed iteration yet")
    return Recovery(committed=found.committed, faults=(*found.faults, *_table_faults(run_dir)))


def _table_faults(run_dir: Path) -> Iterator[str]:
    """Why a resumed run would not find its transitions; none if it would."""
    paths = standing(run_dir)
    head = checkpoint.read_manifest(paths[0])["facts"].get("replay_head", 0) if paths else 0
    path = table_file(run_dir / REPLAY, run_of(run_dir))
    if not path.exists():
        if head:
            yield (
                f"{path} is missing: its replay service keeps it in another directory, and a run "
                "without it would play other transitions"
            )
        return
    try:
        table = TableFile(path)
        table.check()
    except Corrupted as error:
        yield str(error)
        return
    if not table.tail <= head <= table.head:
        yield f"{path} holds positions {table.tail} to {table.head}, and not {head}"


def _copy(run_dir: Path, into: Path) -> None:
    for path in standing(run_dir):
        (into / CHECKPOINTS / path.name).mkdir(parents=True)
        for name in (checkpoint.STATE, checkpoint.MANIFEST):
            shutil.copyfile(path / name, into / CHECKPOINTS / path.name / name)
    for folder in (JOURNAL, HISTORY, REPLAY):
        (into / folder).mkdir(parents=True, exist_ok=True)
    for name in FACTS:
        if (run_dir / name).exists() or name in (CONFIGURATION, IDENTITY):
            shutil.copyfile(run_dir / name, into / name)
    for path in (run_dir / HEADS).glob("*.npz"):
        (into / HEADS).mkdir(exist_ok=True)
        shutil.copyfile(path, into / HEADS / path.name)
    for name in LINES:
        _copy_lines(run_dir / name, into / name)
    # The controller's events first: those that they depend on are in the other logs already.
    for path in sorted(
        (run_dir / HISTORY).glob("*.jsonl"), key=lambda log: log.stem != "controller"
    ):
        _copy_lines(path, into / HISTORY / path.name)
    _copy_tables(run_dir, into)
    for path in sorted((run_dir / JOURNAL).glob("*.journal")):
        shutil.copyfile(path, into / JOURNAL / path.name)


def _copy_tables(run_dir: Path, into: Path) -> None:
    """Copy the run's table and its fence; a replay service may hold those of other runs beside."""
    path = table_file(run_dir / REPLAY, run_of(run_dir))
    if not path.exists():
        return
    copy = into / path.relative_to(run_dir)
    if (fence := path.with_name(FENCE)).exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fence, copy.with_name(FENCE))
    copy_table(TableFile(path), copy)


def _copy_lines(source: Path, target: Path) -> None:
    """Copy the whole lines of a file, if it exists."""
    if source.exists():
        shutil.copyfile(source, target)
        os.truncate(target, whole_bytes(target))


CONTENTS = "archive.json"
"""The first file of an archive: its format, and size and checksum of every other file."""
_BOUNDS = Bounds(size=2**24)
_CHECKSUM_BYTES = 16
_AT_ONCE = 2**20
_NAME = re.compile(
    r"config\.toml|(run|numerics|verdicts)\.json|caveats\.txt|(metrics|evaluations)\.jsonl"
    r"|checkpoints/\d{1,18}/(state\.safetensors|manifest\.json)"
    r"|journal/\d{1,18}-\d{1,18}\.journal"
    r"|replay/([\w-]{1,64}/)?([\w-]{1,64}\.table|fence\.json)"
    r"|history/[\w-]{1,64}\.jsonl|heads/\d{1,5}\.npz",
    re.ASCII,
)
"""Names that a run has; the key of its audits is not among them and never leaves the machine."""


class _Content(NamedTuple):
    """A file of an archive."""

    size: int
    checksum: str


def pack(directory: Path, file: Path) -> int:
    """Write the files of a copied run to an archive; returns its size in bytes.

    Raises:
        OSError: The disk does not take it; no file is left.
    """
    names = sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )
    contents = {name: _content_of(directory / name) for name in names if _NAME.fullmatch(name)}
    with replace_file(file) as target:
        with ZipFile(target, "w", ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(CONTENTS, json.dumps({"format": FORMAT, "files": contents}))
            for name in contents:
                archive.write(directory / name, name)
        return target.tell()


def unpack(file: Path, directory: Path) -> None:
    """Write the files of an archive to a directory that does not exist yet, checking each.

    Raises:
        FullrankError: It is not an archive of a run, is damaged, or is larger than the disk; the
            caller removes the files written so far.
        VersionMismatch: A later version of Fullrank wrote it.
    """
    try:
        with open(file, "rb", opener=regular) as opened, ZipFile(opened) as archive:
            contents = _contents(archive, file)
            needed = sum(content.size for content in contents.values())
            directory.mkdir(parents=True)
            if needed > (free := shutil.disk_usage(directory).free):
                raise FullrankError(
                    f"{file} holds {needed} bytes, and {directory} has room for {free}"
                )
            for name, content in contents.items():
                _write(archive, name, content, directory / name, origin=file)
    except OSError as error:
        raise FullrankError(f"{file} cannot be unpacked: {error.strerror or error}") from error
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FullrankError(f"{file} is not a complete archive of a run: {error}") from error


def _contents(archive: ZipFile, file: Path) -> dict[str, _Content]:
    """The announced files, which are exactly those that the archive has."""
    entries = archive.infolist()
    if not entries or entries[0].filename != CONTENTS or entries[0].file_size > _BOUNDS.size:
        raise FullrankError(f"{file} is not an archive of a run: it does not begin with {CONTENTS}")
    try:
        announced: JSON = parse_json(archive.read(entries[0]), origin=CONTENTS, bounds=_BOUNDS)
        check_format(announced.get("format"), where=str(file))
        files = {str(name): _Content(*content) for name, content in announced["files"].items()}
    except (Malformed, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FullrankError(f"{file} is not an archive of a run: {CONTENTS}: {error}") from None
    for entry in entries[1:]:
        if not _NAME.fullmatch(entry.filename):
            raise FullrankError(f"{file} holds {entry.filename!r}, which no run has")
    stated = {name: content.size for name, content in files.items()}
    if [(entry.filename, entry.file_size) for entry in entries[1:]] != list(stated.items()):
        raise FullrankError(f"{file} holds other files than {CONTENTS} announces")
    return files


def _write(archive: ZipFile, name: str, content: _Content, path: Path, *, origin: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as source, path.open("xb") as target:
        checksum = blake3()
        while block := source.read(_AT_ONCE):
            checksum.update(block)
            _put(target, block)
        target.truncate()
    if (path.stat().st_size, checksum.hexdigest(_CHECKSUM_BYTES)) != content:
        raise FullrankError(f"{origin}: {name} is damaged, its checksum differs from {CONTENTS}")


def _put(target: BinaryIO, block: bytes) -> None:
    """Write a block; one of zeros becomes a hole, as in the tables that are archived."""
    if block.strip(b"\0"):
        target.write(block)
    else:
        target.seek(len(block), 1)


def _content_of(path: Path) -> _Content:
    checksum = blake3().update_mmap(path).hexdigest(_CHECKSUM_BYTES)
    return _Content(path.stat().st_size, checksum)
