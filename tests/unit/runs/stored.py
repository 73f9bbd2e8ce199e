"""The durable side of a controller with a store, as ``SharedStore`` orders it."""

import json
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.runs.test_recovery import STATE

from fullrank.common.types import FloatArray
from fullrank.runs.checkpoint import save, saved
from fullrank.runs.journal import Journal
from fullrank.runs.objects import Objects
from fullrank.runs.recovery import examine
from fullrank.runs.store import SharedStore

ITERATIONS, EVERY = 9, 3
ROWS, DRAWN = 2, 8
"""Rows of an iteration, and those from which one draws."""
_INSTANCES = count(1)


class Tapped:
    """Objects that call ``tap`` before each operation."""

    def __init__(self, objects: Objects, tap: Callable[[], None]) -> None:
        self._objects, self._tap = objects, tap

    def put(self, name: str, content: bytes) -> None:
        self._tap()
        self._objects.put(name, content)

    def create(self, name: str, content: bytes) -> bool:
        self._tap()
        return self._objects.create(name, content)

    def get(self, name: str) -> bytes:
        self._tap()
        return self._objects.get(name)

    def remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._tap()
            self._objects.remove([name])


def line(iteration: int) -> str:
    return f'{{"iteration": {iteration}}}\n'


def rows(first: int, last: int) -> FloatArray:
    """The rows that replay holds, of two entries."""
    return np.repeat(np.arange(first, last, dtype=np.float32)[:, None], 2, axis=1)


class Controller:
    """The durable side of a controller, as ``SharedStore`` orders it."""

    def __init__(self, run_dir: Path, place: str) -> None:
        self.run_dir, self.published = run_dir, list[int]()
        run_dir.mkdir(exist_ok=True)
        path = run_dir / "run.json"
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"term": 0}
        self.store = SharedStore(place, run_dir, keep=1)
        found = self.store.log.read()
        self.term = self.store.begin(
            found.run if found else "a", digest="", last=known["term"], instance=next(_INSTANCES)
        )
        path.write_text(json.dumps({"run": "a", "term": self.term}))
        (run_dir / "config.toml").write_text("format = 1\n")
        (run_dir / "numerics.json").write_text(f"since term {self.term}\n")
        self.begins = examine(run_dir, published=0).committed
        (run_dir / "metrics.jsonl").write_text("".join(map(line, range(self.begins))))
        self.journal = Journal(
            run_dir / "journal", term=self.term, first=self.begins, confirm=lambda: None
        )
        if self.begins > max(
            (int(path.name) + 1 for path in saved(run_dir / "checkpoints")), default=0
        ):
            self.save(self.begins - 1)  # as a controller does that has repeated iterations

    def run(self, iterations: int = ITERATIONS) -> None:
        for iteration in range(self.begins, iterations):
            self.commit(iteration)
            if (iteration + 1) % EVERY == 0:
                self.save(iteration)
        self.begins = max(self.begins, iterations)

    def commit(self, iteration: int) -> None:
        updates = np.full((2, 3), iteration, np.float32)
        record = self.journal.append(iteration, facts={}, updates=updates)
        self.store.add(record.segment, record.pieces)
        self.store.ship()
        self.published.append(iteration)
        with (self.run_dir / "metrics.jsonl").open("a") as file:
            file.write(line(iteration))

    def save(self, iteration: int) -> None:
        checkpoints = self.run_dir / "checkpoints"
        facts = {"term": self.term, "replay_head": ROWS * (iteration + 1)}
        save(checkpoints, iteration=iteration, arrays=STATE, facts=facts, keep=1)
        self.journal.begin_segment(iteration + 1, keep_from=iteration + 1)
        since = self.store.log.next
        for first, last in self.store.plan(head=ROWS * (iteration + 1), drawn=DRAWN, row_bytes=8):
            self.store.put_rows(first, rows(first, last))
        self.store.checkpoint(since)


def committed(run_dir: Path) -> int:
    found = examine(run_dir, published=0)
    assert found.faults == ()
    return found.committed


def restored(run_dir: Path, place: str) -> Path:
    """A new directory with what a controller on another machine would begin with."""
    run_dir.mkdir()
    store = SharedStore(place, run_dir, keep=1)
    assert store.log.read() is not None
    store.begin("a", digest="", last=0, instance=next(_INSTANCES))
    return run_dir


def assert_alike(taken: Path, original: Path) -> None:
    """Compare the state that a later controller found with the directory of its predecessor."""
    assert committed(taken) == committed(original)
    checkpoint = saved(original / "checkpoints")[0]
    for file in checkpoint.iterdir():
        stored = taken / file.relative_to(original)
        assert stored.read_bytes() == file.read_bytes()
    found, expected = ((each / "metrics.jsonl").read_bytes() for each in (taken, original))
    assert expected.startswith(found)
    assert found.count(b"\n") > int(checkpoint.name)
    numerics = [(each / "numerics.json").read_text() for each in (taken, original)]
    assert numerics[0] == numerics[1]
