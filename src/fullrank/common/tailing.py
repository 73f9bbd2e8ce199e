"""Read files of lines, also while another process appends to them."""

import os
from collections.abc import Iterator
from pathlib import Path

from fullrank.common.errors import Malformed
from fullrank.common.foreign import open_regular
from fullrank.common.text import plain

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
