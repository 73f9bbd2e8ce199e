"""Archives: a copied run in one file, which is checked before anything of it is used.

An archive is a ZIP file with the files of a run and, first of all, a list of their sizes and
checksums. Archives are not trusted: only names that a run has are written, never outside the new
directory, and no more bytes than were announced and fit on the disk.
"""

import json
import re
import shutil
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from blake3 import blake3

from fullrank.common.durable import replace_file
from fullrank.common.errors import FullrankError, Malformed
from fullrank.common.foreign import Bounds, parse_json, regular
from fullrank.common.formats import FORMAT, check_format
from fullrank.common.types import JSON

CONTENTS = "archive.json"
"""The first file of an archive: its format, and size and checksum of every other file."""
_BOUNDS = Bounds(size=2**24)
_CHECKSUM_BYTES = 16
_AT_ONCE = 2**20
_NAME = re.compile(
    r"config\.toml|run\.json|numerics\.json|(disputed|caveats)\.txt|(metrics|evaluations)\.jsonl"
    r"|checkpoints/\d{1,18}/(state\.safetensors|manifest\.json)"
    r"|journal/\d{1,18}-\d{1,18}\.journal"
    r"|replay/([\w-]{1,64}/)?([\w-]{1,64}\.table|fence\.json)"
    r"|history/[\w-]{1,64}\.jsonl",
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
    checksum = blake3()
    with path.open("rb") as file:
        while block := file.read(_AT_ONCE):
            checksum.update(block)
    return _Content(path.stat().st_size, checksum.hexdigest(_CHECKSUM_BYTES))
