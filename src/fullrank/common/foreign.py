"""Data from elsewhere: files, JSON and TOML that a stranger may have written, read within bounds.

Every reader here returns or raises ``Malformed``, whose message is one line of bounded length.

``config.toml``, ``run.json``, ``fence.json`` and the manifests of checkpoints state the version of
their format; that of ``run.json`` holds for ``metrics.jsonl`` and ``history/``, too. Records of the
journal and tables have marks of their own, and peers name their version when they greet. It rises
with every change that an older reader would misunderstand.
"""

import errno
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fullrank.common.errors import Malformed, VersionMismatch
from fullrank.common.text import plain
from fullrank.common.types import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Bounds of a text that is parsed."""

    size: int = 2**20
    """Largest length of the text, bytes."""
    nesting: int = 64
    """Most levels of tables and arrays."""
    digits: int = 64
    """Most digits of an integer; the states of generators have 39."""
    finite: bool = True
    """Refuse numbers that are not finite, which some settings may be."""


TEXT = Bounds()
_SHOWN = 80
_CHAIN = re.compile(
    rf"""(?<![\w-])(?:(?>[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){{{TEXT.nesting}}}"""
)
"""A dotted key beyond every limit, which ``tomllib`` would read in quadratic time."""
_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFDIR: "a directory",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def shown(value: object) -> str:
    """Return a value from elsewhere as Python writes it, for a message: ``brief``."""
    try:
        return brief(repr(value[:_SHOWN] if isinstance(value, str | bytes) else value))
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deep nesting
        return f"a value of type {type(value).__name__}"


def brief(text: str, *, limit: int = _SHOWN) -> str:
    """Return text from elsewhere for a message: one printable line of at most 80 characters."""
    line = plain(text[:limit])
    return line if max(len(line), len(text)) <= limit else f"{line[: limit - 1]}…"


def regular(path: str, flags: int) -> int:
    """Opener of regular files alone, for ``open``.

    A FIFO would wait for a writer, and a device may have no end or act when it is opened.

    Raises:
        OSError: It cannot be opened, or is of another kind.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind == stat.S_IFREG:
        return descriptor
    os.close(descriptor)
    named = _KINDS.get(kind, "of another kind")
    raise OSError(errno.EINVAL, f"it is {named}, not a regular file; remove it", path)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting.

    Raises:
        Malformed: It cannot be opened, or is of another kind.
    """
    try:
        return open(path, "rb", opener=regular)
    except (OSError, ValueError) as error:  # a name with a NUL byte is a ValueError
        raise _unreadable(path, error) from error


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a regular file of bounded size.

    Args:
        path: The file; links are followed.
        limit_bytes: Largest size, which is all that is ever read.

    Raises:
        Malformed: It cannot be read, is of another kind, or is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            content = file.read(limit_bytes + 1) if size <= limit_bytes else b""
        except OSError as error:
            raise _unreadable(path, error) from error
    if max(size, len(content)) > limit_bytes:
        raise Malformed(
            f"{plain(path)} has {max(size, len(content))} bytes, and {limit_bytes} are the limit; "
            "restore it from a copy"
        )
    return content


def parse_json(text: str | bytes, *, origin: str, bounds: Bounds = TEXT) -> Any:
    """Parse JSON within bounds.

    Args:
        text: The text; bytes are UTF-8.
        origin: Names the text in messages.
        bounds: Its bounds.

    Raises:
        Malformed: It is not JSON, or exceeds a bound.
    """
    return _parsed(json.loads, "JSON", text, origin, bounds)


def parse_toml(text: str | bytes, *, origin: str, bounds: Bounds = TEXT) -> JSON:
    """Parse TOML within bounds, as ``parse_json`` does.

    Raises:
        Malformed: It is not TOML, or exceeds a bound.
    """
    table: JSON = _parsed(_load_toml, "TOML", text, origin, bounds)
    return table


def _load_toml(text: str) -> JSON:
    if _CHAIN.search(text):
        raise ValueError("a key has too many parts")
    return tomllib.loads(text)


def _parsed(
    load: Callable[[str], Any], language: str, text: str | bytes, origin: str, bounds: Bounds
) -> Any:
    if len(text) > bounds.size:
        raise Malformed(f"{origin} has {len(text)} bytes, and {bounds.size} are the limit")
    try:
        value = load(text if isinstance(text, str) else text.decode())
        _check(value, bounds)
    except UnicodeDecodeError:
        raise Malformed(f"{origin} is not UTF-8 text") from None
    except RecursionError:
        raise Malformed(f"{origin} is nested more than {bounds.nesting} deep") from None
    except ValueError as error:  # another language, or an integer that Python refuses
        raise Malformed(f"{origin} is not valid {language}: {brief(str(error))}") from error
    return value


def _check(root: object, bounds: Bounds) -> None:
    """Raise ``ValueError`` for a value beyond the bounds; goes by levels, without recursion."""
    level: list[object] = [root]
    for _ in range(bounds.nesting + 1):
        for value in level:
            if bounds.finite and isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{value} is not a finite number")
            if isinstance(value, int) and abs(value) >= 10**bounds.digits:
                raise ValueError(f"an integer has more than {bounds.digits} digits")
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {bounds.nesting} deep")


def _unreadable(path: Path, error: OSError | ValueError) -> Malformed:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return Malformed(f"cannot read {plain(path)}: {reason}")


FORMAT = 1
"""Written today. A file that states none, such as a user's configuration, reads as 1."""


def check_format(version: object, *, where: str) -> None:
    """Refuse a file of a format that this version of Fullrank does not know.

    Args:
        version: The version that the file states; 1 if it states none.
        where: Names the file in the message.

    Raises:
        VersionMismatch: The version is newer than ``FORMAT``, or is no version.
    """
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise VersionMismatch(
            f"{where} has format {version!r}, and this version of Fullrank reads formats up to "
            f"{FORMAT}: install the version that wrote it, or a later one"
        )


LINE_BYTES = 2**24
"""Longest line."""


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file, which end with a newline; it is removed.

    Raises:
        Malformed: The file cannot be read, is no regular one, or has a line beyond ``LINE_BYTES``.
    """
    with open_regular(path) as file:
        while line := file.readline(LINE_BYTES + 1):
            if not line.endswith(b"\n"):
                _check_length(path, line)
                return
            yield line[:-1]


def appended(path: Path) -> Iterator[list[bytes]]:
    """Yield, for ever, the lines completed since the last time; none while there is no file.

    Lines end with a newline, which is removed. A file that replaces another one is read from its
    start.

    Raises:
        Malformed: As ``lines_of``.
    """
    offset, inode = 0, -1
    while True:
        lines: list[bytes] = []
        if path.exists():
            with open_regular(path) as file:
                current = os.fstat(file.fileno()).st_ino
                offset, inode = offset if current == inode else 0, current
                file.seek(offset)
                *lines, begun = file.read().split(b"\n")
                _check_length(path, begun)
                offset = file.tell() - len(begun)
        yield lines


def _check_length(path: Path, begun: bytes) -> None:
    if len(begun) > LINE_BYTES:
        raise Malformed(f"{plain(path)} has a line of more than {LINE_BYTES} bytes; remove it")
