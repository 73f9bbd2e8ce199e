"""Cells: parts of an experiment, each computed once and stored, so that a stop costs one cell.

``<directory>/cells.jsonl`` has a line for each: its name, result, settings, the rules of verdicts
that were there before it, and a checksum.
A damaged result, or one with other settings, is computed again. A setting that is only stored does
not count, nor does a new one with its default: settings come and go with a value that changes no
run.
"""

import gc
import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum, auto
from functools import cache
from inspect import signature
from pathlib import Path
from threading import Thread
from typing import Any, TypeAlias, TypeVar

from threadpoolctl import threadpool_limits

from fullrank.algorithms import algorithms
from fullrank.common.durable import replace_text
from fullrank.common.types import JSON
from fullrank.config.tree import RunConfig, as_tables
from fullrank.environments import environments
from fullrank.host.process import keep_freed_pages, return_freed_pages
from fullrank_papers.claims import RULES

CELLS = "cells.jsonl"

Computed = TypeVar("Computed")

Results: TypeAlias = Mapping[str, JSON]
"""Results by the name of their cell."""

HOST_TABLES = frozenset(
    (
        *("replay", "controller", "monitor", "dashboard", "learner", "health", "tls", "sidecar"),
        *("audit", "checkpoint", "metrics"),
    )
)
"""Tables of a configuration that say where and how a run is kept, and not what it computes."""


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
    """Unique name."""
    settings: JSON
    """All inputs that determine the result."""
    compute: Callable[[], JSON]
    weight: float = 1.0
    """Relative duration, used to estimate the remaining time."""
    beside: bool = False
    """True if other cells may be computed at the same time, because it waits more than it computes
    or measures no wall time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """A cell whose settings follow from the results of others."""

    name: str
    needs: tuple[str, ...]
    """Names of these cells."""
    make: Callable[[Results], Cell]
    """Makes the cell from results that hold theirs."""
    weight: float = 1.0


def settings_of(config: RunConfig) -> JSON:
    """The tables of a configuration that determine what a run computes."""
    return {name: table for name, table in as_tables(config).items() if name not in HOST_TABLES}


class CellStore:
    """The results of a directory.

    Args:
        directory: Directory of the results, which exists.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / CELLS
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        # The name stands first, so that a damaged line is known by it.
        self._lines = {line.partition('": "')[2].partition('"')[0]: line for line in lines}

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def after_rules(self, name: str) -> bool:
        """True if a cell was computed when the rules of its verdicts were there."""
        return f'"rules": "{RULES}"' in self._lines.get(name, "")

    def find(self, cell: Cell) -> tuple[JSON | None, CellOrigin]:
        """The stored result, or None and why it must be computed."""
        if cell.name not in self._lines:
            return None, CellOrigin.COMPUTED
        try:
            stored = json.loads(self._lines[cell.name])
            if stored["checksum"] != _checksum(stored):
                return None, CellOrigin.DAMAGED
        except (ValueError, KeyError, TypeError):
            return None, CellOrigin.DAMAGED
        if not _alike(stored["settings"], json.loads(json.dumps(cell.settings))):
            return None, CellOrigin.CHANGED
        result: JSON = stored["result"]
        return result, CellOrigin.KEPT

    def put(self, cell: Cell, result: JSON) -> None:
        """Store a result; a stop leaves the file as it was before or after."""
        stored = {"result": result, "rules": RULES, "settings": cell.settings}
        named = {"cell": cell.name, "checksum": _checksum(stored)}
        self._lines[cell.name] = json.dumps(named | stored)
        replace_text(self._path, "".join(f"{self._lines[name]}\n" for name in sorted(self._lines)))


def gather(
    planned: Sequence[Cell | Later],
    store: CellStore,
    *,
    chosen: Collection[str],
    done: Callable[[Cell | Later, CellOrigin], None] = lambda cell, origin: None,
    others: Sequence[CellStore] = (),
    workers: int = 1,
) -> dict[str, JSON]:
    """Results by cell name: stored ones are reused, missing ones of the chosen cells computed.

    Args:
        planned: The cells, in order of computation; those that may be computed beside others
            follow at the end if there are several workers, the longest first.
        store: The results of this experiment.
        chosen: Names of the cells that are computed.
        done: Called with each cell when its result is available.
        others: Results of other scales, which count for equal cells.
        workers: Processes for cells that may be computed beside others; one computes them here.
    """
    results: dict[str, JSON] = {}
    left = {cell.name: cell for cell in planned}
    while ready := [each for each in left.values() if _needs(each) <= results.keys()]:
        later: dict[str, tuple[Cell, CellOrigin]] = {}
        for each in ready:
            cell = left.pop(each.name)
            cell = cell.make(results) if isinstance(cell, Later) else cell
            found, origin = store.find(cell)
            elsewhere = [] if found is not None else [other.find(cell)[0] for other in others]
            found = next((each for each in (found, *elsewhere) if each is not None), None)
            if found is not None:
                origin = CellOrigin.KEPT
            elif cell.name not in chosen:
                continue
            elif cell.beside and workers > 1:
                later[cell.name] = cell, origin
                continue
            else:
                found = cell.compute()
                store.put(cell, found)
            results[cell.name] = found
            done(cell, origin)
        longest_first = sorted((cell for cell, _ in later.values()), key=lambda cell: -cell.weight)
        jobs = {cell.name: cell.compute for cell in longest_first}
        for name, found in computed(jobs, workers=workers) if jobs else ():
            cell, origin = later[name]
            store.put(cell, found)
            results[name] = found
            done(cell, origin)
    return {cell.name: results[cell.name] for cell in planned if cell.name in results}


def _needs(cell: Cell | Later) -> set[str]:
    return set(cell.needs) if isinstance(cell, Later) else set()


def _alike(stored: JSON, now: JSON, defaults: Any = None) -> bool:
    """True if every setting that both have is the same, and every new one has its default.

    Args:
        stored: Settings of a stored result.
        now: Settings of the cell.
        defaults: Those of ``now``, where they are known, as of a run.
    """
    if isinstance(stored, dict) and isinstance(now, dict):
        if (named := now.get("algorithm")) and "name" in named:
            defaults = _defaults(named["name"], now["environment"]["name"])
        known = defaults if isinstance(defaults, dict) else {}
        return all(
            _alike(stored[key], value, known.get(key))
            if key in stored
            else key in known and bool(known[key] == value)
            for key, value in now.items()
        )
    if isinstance(stored, list) and isinstance(now, list):
        return len(stored) == len(now) and all(map(_alike, stored, now))
    return bool(stored == now)


@cache
def _defaults(algorithm: str, environment: str) -> JSON:
    """Settings of a run of which none is given."""
    tables = as_tables(RunConfig())
    for name, made in (
        ("algorithm", algorithms.get(algorithm)),
        ("environment", environments.get(environment)),
    ):
        parameters = signature(made).parameters.values()
        given = {each.name: each.default for each in parameters if each.default is not each.empty}
        tables[name] = {**tables[name], **given}
    found: JSON = json.loads(json.dumps(tables, default=str))
    return found


def _checksum(stored: JSON) -> str:
    """Checksum of what a line stores; those from before the rules have none of them."""
    parts = [stored[key] for key in ("settings", "result", "rules") if key in stored]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def computed(
    jobs: Mapping[str, Callable[[], Computed]],
    *,
    workers: int,
) -> Iterator[tuple[str, Computed]]:
    """Yield names and results of jobs as they end.

    If one fails or the iterator is closed, jobs that have not begun are given up.

    Args:
        jobs: Jobs by name, in the order in which they begin; they are pickled.
        workers: Processes to start at most, with one thread each.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, len(jobs)), context, _begin) as pool:
        try:
            running = {pool.submit(_alone, job): name for name, job in jobs.items()}
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _alone(job: Callable[[], Computed]) -> Computed:
    """Run a job, and leave none of its memory to the next one."""
    try:
        return job()
    finally:
        gc.collect()
        return_freed_pages()


def _begin() -> None:
    import torch

    keep_freed_pages()
    threadpool_limits(limits=1)
    torch.set_num_threads(1)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
