"""Faults to plant: each is a deciding line made wrong, with the test that catches it."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault of one line or a few."""

    area: str
    """Name of the file that lists it."""
    name: str
    """What goes wrong, as a sentence."""
    file: str
    """Source file, relative to the repository."""
    before: str
    """Text that stands once in the file."""
    after: str
    """Text that takes its place."""
    test: str
    """Node of the test that fails with the fault and passes without."""


def faults() -> list[Planted]:
    """All faults, area by area."""
    return [
        Planted(area=path.stem, **entry)
        for path in sorted(FOLDER.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["fault"]
    ]
