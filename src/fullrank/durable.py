"""What must be on disk before anybody relies on it."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable: what was made, renamed or removed there."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
