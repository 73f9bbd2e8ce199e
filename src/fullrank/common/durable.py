"""Replace files atomically, force directory entries to disk, and say what cannot be written."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fullrank.common.errors import FullrankError

ROOM = "make room and resume"
"""Remedy where a run has stopped on a full disk."""


@contextmanager
def replace_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open the next content of ``path``; it replaces the file when the block ends, on disk.

    The content is written beside the file, synced and renamed, so that a crash leaves the old file
    or the new one, whole. A block that raises leaves the old file. The directory is made if it is
    missing; one process at a time writes a path.

    Args:
        path: The file, which may not exist yet.
        mode: Permissions of the new file, less the umask.

    Raises:
        OSError: The disk does not take it; the old file is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}")
    scratch.unlink(missing_ok=True)  # of a crash, perhaps with other permissions
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def replace_bytes(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Replace a file by ``content``, as ``replace_file`` does."""
    with replace_file(path, mode=mode) as file:
        file.write(content)


def replace_text(path: Path, text: str) -> None:
    """Replace a file by UTF-8 ``text``, as ``replace_file`` does."""
    replace_bytes(path, text.encode())


def rename(finished: Path, path: Path) -> None:
    """Give a finished file or directory its name, in place of an older file of it, on disk.

    Args:
        finished: On the file system of ``path``; the content of files is synced by then.
        path: The name.
    """
    finished.replace(path)
    sync_directory(path.parent)


@contextmanager
def writing(
    path: Path, *, remedy: str = "", raised: type[FullrankError] = FullrankError
) -> Iterator[None]:
    """Raise an error of Fullrank where the body cannot write ``path``.

    Args:
        path: The file or directory, which the message names.
        remedy: End of the message.
        raised: Kind of the error.
    """
    try:
        yield
    except OSError as error:
        reason = f"cannot write {path}: {error.strerror or error}"
        raise raised(f"{reason}; {remedy}" if remedy else reason) from error


def write_at(descriptor: int, data: memoryview, place: int) -> None:
    """Write all bytes at a place of a file, of which a call may take a part."""
    while data:
        written = os.pwrite(descriptor, data, place)
        data, place = data[written:], place + written


def sync_directory(directory: Path) -> None:
    """Force the names created, renamed or removed in a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
