"""Recorded trajectories: those of the repository, and longer ones from ``FULLRANK_GOLDEN``."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

AnyArray: TypeAlias = np.ndarray[Any, Any]
Recording: TypeAlias = Mapping[str, AnyArray]

HERE = Path(__file__).parents[2] / "golden"
FOLDERS = [HERE, *(Path(folder) for folder in [os.environ.get("FULLRANK_GOLDEN")] if folder)]


def recordings(*patterns: str) -> list[Path]:
    """All recordings whose names match one of the patterns."""
    found = {path for folder in FOLDERS for p in patterns for path in folder.glob(f"{p}.npz")}
    return sorted(found)


def load(path: Path) -> Recording:
    """The arrays of a recording by name."""
    return dict(np.load(path, allow_pickle=False))
