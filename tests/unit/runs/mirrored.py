"""The durable side of a controller with a mirror, as ``RunStore`` orders it."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from tests.unit.runs.test_recovery import STATE

from fullrank.runs.checkpoint import save, saved
from fullrank.runs.journal import Journal
from fullrank.runs.mirror import Mirror
from fullrank.runs.objects import Objects
from fullrank.runs.recovery import examine

ITERATIONS, EVERY = 9, 3


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

    def names(self, prefix: str = "") -> list[str]:
        self._tap()
        return self._objects.names(prefix)

    def remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            self._tap()
            self._objects.remove([name])


def line(iteration: int) -> str:
    return f'{{"iteration": {iteration}}}\n'


class Controller:
    """The durable side of a controller, as ``RunStore`` orders it."""

    def __init__(self, run_dir: Path, place: str) -> None:
        self.run_dir, self.published = run_dir, list[int]()
        run_dir.mkdir(exist_ok=True)
        path = run_dir / "run.json"
        known: dict[str, Any] = (
            json.loads(path.read_text()) if path.exists() else {"run": "a", "term": 0}
        )
        self.mirror = Mirror(place, run_dir)
        term = self.mirror.claims.claim(str(known["run"]), last=int(known["term"]))
        path.write_text(json.dumps({**known, "term": term}))
        (run_dir / "config.toml").write_text("format = 1\n")
        (run_dir / "numerics.json").write_text(f"since term {term}\n")
        self.mirror.mend(keep=1)
        self.mirror.equalise()
        self.begins = examine(run_dir, published=0).committed
        (run_dir / "metrics.jsonl").write_text("".join(map(line, range(self.begins))))
        self.term = term
        self.journal = Journal(
            run_dir / "journal", term=term, first=self.begins, confirm=lambda: None
        )
        if self.begins > max(
            (int(path.name) + 1 for path in saved(run_dir / "checkpoints")), default=0
        ):
            self.save(self.begins - 1)  # as a controller does that has repeated iterations

    def run(self, iterations: int = ITERATIONS) -> None:
        for iteration in range(self.begins, iterations):
            updates = np.full((2, 3), iteration, np.float32)
            self.mirror.store(self.journal.append(iteration, facts={}, updates=updates))
            self.published.append(iteration)
            with (self.run_dir / "metrics.jsonl").open("a") as file:
                file.write(line(iteration))
            if (iteration + 1) % EVERY == 0:
                self.save(iteration)

    def save(self, iteration: int) -> None:
        checkpoints, facts = self.run_dir / "checkpoints", {"term": self.term}
        path = save(checkpoints, iteration=iteration, arrays=STATE, facts=facts, keep=1)
        self.journal.begin_segment(iteration + 1, keep_from=iteration + 1)
        self.mirror.checkpoint(path)


def committed(run_dir: Path) -> int:
    found = examine(run_dir, published=0)
    assert found.faults == ()
    return found.committed


def assert_alike(taken_over: Path, original: Path) -> None:
    """Compare the state that a standby found with the directory of its predecessor."""
    assert committed(taken_over) == committed(original)
    checkpoint = saved(original / "checkpoints")[0]
    for file in checkpoint.iterdir():
        stored = taken_over / file.relative_to(original)
        assert stored.read_bytes() == file.read_bytes()
    found, expected = ((each / "metrics.jsonl").read_bytes() for each in (taken_over, original))
    assert expected.startswith(found)
    assert found.count(b"\n") > int(checkpoint.name)
    numerics = [(each / "numerics.json").read_text() for each in (taken_over, original)]
    assert numerics[0] == numerics[1]
