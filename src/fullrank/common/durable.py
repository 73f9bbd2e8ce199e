"""What must be on disk before anybody relies on it."""

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Replace a file, whole or not at all; it is on disk when this returns."""
    scratch = path.with_name(f".{path.name}")
    with scratch.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable: what was made, renamed or removed there."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
