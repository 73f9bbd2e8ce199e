"""Cells: parts of an experiment, each computed once and stored, so that a stop costs one cell.

``<directory>/cells/<name>.json`` holds a result, its settings, and a checksum of both. A damaged
result, or one with other settings, is computed again. A setting that did not exist when a result
was stored does not count: settings are introduced with a default that changes no run.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path

from fullrank.common.durable import replace_text
from fullrank.common.types import JSON
from fullrank_reproduction.workers import computed

Clock = Callable[[], float]
"""Processor seconds of this process."""

CELLS = "cells"
"""Directory of the results below that of the page."""


class CellOrigin(StrEnum):
    """Origin of a cell's result."""

    KEPT = auto()
    COMPUTED = auto()
    DAMAGED = auto()
    """A damaged result was computed again."""
    CHANGED = auto()
    """A result with other settings was computed again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One part of an experiment."""

    name: str
    """Unique name; only letters, digits, ``-``, ``_`` and ``.``."""
    settings: JSON
    """All inputs that determine the result."""
    compute: Callable[[], JSON]
    weight: float = 1.0
    """Relative duration, used to estimate the remaining time."""
    beside: bool = False
    """True if other cells may be computed at the same time, because it waits more than it computes
    or measures no wall time."""
    after: str | None = None
    """Name of a cell that must be computed before."""


def run(
    cells: Sequence[Cell],
    directory: Path,
    *,
    done: Callable[[Cell, CellOrigin], None] = lambda cell, origin: None,
    others: Sequence[Path] = (),
    workers: int = 1,
) -> dict[str, JSON]:
    """Results by cell name; stored results are reused.

    Args:
        cells: The cells, in order of computation; those that may be computed beside others follow
            at the end if there are several workers, the longest first.
        directory: Directory of the results.
        done: Called with each cell when its result is available.
        others: Directories of other scales, whose results of equal cells are reused too.
        workers: Processes for cells that may be computed beside others; one computes them here.
    """
    (directory / CELLS).mkdir(parents=True, exist_ok=True)
    results: dict[str, JSON] = {}
    later: dict[str, tuple[Cell, CellOrigin]] = {}

    def take(cell: Cell, content: JSON, origin: CellOrigin) -> None:
        results[cell.name] = content
        done(cell, origin)

    def store(cell: Cell, content: JSON, origin: CellOrigin) -> None:
        _write(path_of(cell.name, directory), cell.settings, content)
        take(cell, content, origin)

    for cell in cells:
        content, origin = _read(path_of(cell.name, directory), cell.settings)
        if content is not None:
            take(cell, content, origin)
            continue
        elsewhere = (_read(path_of(cell.name, other), cell.settings) for other in others)
        content = next((found for found, _ in elsewhere if found is not None), None)
        if content is not None:
            store(cell, content, CellOrigin.KEPT)
        elif cell.beside and workers > 1:
            later[cell.name] = cell, origin
        else:
            store(cell, cell.compute(), origin)
    longest_first = sorted((cell for cell, _ in later.values()), key=lambda cell: -cell.weight)
    jobs = {cell.name: cell.compute for cell in longest_first}
    after = {cell.name: cell.after for cell in longest_first if cell.after is not None}
    for name, content in computed(jobs, workers=workers, after=after) if jobs else ():
        cell, origin = later[name]
        store(cell, content, origin)
    return {cell.name: results[cell.name] for cell in cells}


def kept(cells: Sequence[Cell], directory: Path) -> dict[str, JSON]:
    """Stored results of cells by name; nothing is computed."""
    found = {cell.name: _read(path_of(cell.name, directory), cell.settings) for cell in cells}
    return {name: content for name, (content, _) in found.items() if content is not None}


def path_of(name: str, directory: Path) -> Path:
    """File of a cell's result."""
    return directory / CELLS / f"{name}.json"


def _read(path: Path, settings: JSON) -> tuple[JSON | None, CellOrigin]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["checksum"] != _checksum(stored["settings"], stored["result"]):
            return None, CellOrigin.DAMAGED
    except FileNotFoundError:
        return None, CellOrigin.COMPUTED
    except (ValueError, KeyError, TypeError):
        return None, CellOrigin.DAMAGED
    if not _unchanged(stored["settings"], json.loads(json.dumps(settings))):
        return None, CellOrigin.CHANGED
    result: JSON = stored["result"]
    return result, CellOrigin.KEPT


def _unchanged(stored: JSON, now: JSON) -> bool:
    """True if every stored setting has the same value now."""
    if isinstance(stored, dict) and isinstance(now, dict):
        return all(key in now and _unchanged(value, now[key]) for key, value in stored.items())
    return bool(stored == now)


def _write(path: Path, settings: JSON, result: JSON) -> None:
    stored = {
        "settings": settings,
        "result": result,
        "checksum": _checksum(settings, result),
    }
    replace_text(path, json.dumps(stored))


def _checksum(settings: JSON, result: JSON) -> str:
    text = json.dumps([settings, result], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
