"""A file of lines that somebody else appends to, read as it grows."""

import os
from collections.abc import Iterator
from pathlib import Path


def appended(path: Path) -> Iterator[list[bytes]]:
    """For ever: the lines that were completed since the last call; none while there is no file.

    A line ends with a newline, which is left out. A file that replaced another one is read from its
    start.
    """
    offset, inode = 0, -1
    while True:
        lines: list[bytes] = []
        if path.exists():
            with path.open("rb") as file:
                found = os.fstat(file.fileno()).st_ino
                offset, inode = offset if found == inode else 0, found
                file.seek(offset)
                *lines, begun = file.read().split(b"\n")
                offset = file.tell() - len(begun)
        yield lines
