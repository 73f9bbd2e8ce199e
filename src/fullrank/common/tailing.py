"""Read a file of lines while another process appends to it."""

import os
from collections.abc import Iterator
from pathlib import Path


def appended(path: Path) -> Iterator[list[bytes]]:
    """Yield, for ever, the lines completed since the last time; none while there is no file.

    Lines end with a newline, which is removed. A file that replaces another one is read from its
    start.
    """
    offset, inode = 0, -1
    while True:
        lines: list[bytes] = []
        if path.exists():
            with path.open("rb") as file:
                current = os.fstat(file.fileno()).st_ino
                offset, inode = offset if current == inode else 0, current
                file.seek(offset)
                *lines, begun = file.read().split(b"\n")
                offset = file.tell() - len(begun)
        yield lines
