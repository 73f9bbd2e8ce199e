"""Processes compute the cells that allow it, and end with their parent."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.waiting import wait_until

from fullrank.common.types import JSON
from fullrank_papers.cells import Cell, CellOrigin, CellStore, Later, gather

pytestmark = pytest.mark.integration


def run(
    cells: list[Cell],
    directory: Path,
    done: Callable[[Cell | Later, CellOrigin], None] = lambda cell, origin: None,
) -> dict[str, JSON]:
    names = {cell.name for cell in cells}
    return gather(cells, CellStore(directory), chosen=names, done=done, workers=2)


def own_process() -> JSON:
    return {"process": os.getpid()}


def failing() -> JSON:
    raise ValueError("no number")


def test_cells_are_computed_by_as_many_processes_as_workers_and_stored(tmp_path: Path) -> None:
    told: list[tuple[str, CellOrigin]] = []
    cells = [
        Cell(name=name, settings={}, compute=own_process, beside=name != "here")
        for name in ("a", "here", "b", "c")
    ]
    results = run(cells, tmp_path, done=lambda cell, origin: told.append((cell.name, origin)))
    assert list(results) == ["a", "here", "b", "c"]
    assert results["here"] == own_process()
    others = {results[name]["process"] for name in "abc"}
    assert len(others | {os.getpid()}) == len(others) + 1 <= 3
    assert told[0] == ("here", CellOrigin.COMPUTED)
    assert sorted(told) == [(name, CellOrigin.COMPUTED) for name in sorted(results)]
    assert run(cells, tmp_path) == results


def test_a_cell_that_fails_leaves_the_results_of_others(tmp_path: Path) -> None:
    cell = Cell(name="a", settings={}, compute=own_process, beside=True)
    with pytest.raises(ValueError, match="no number"):
        run([cell, replace(cell, name="b", compute=failing)], tmp_path)
    assert "b" not in CellStore(tmp_path)
    assert set(run([replace(cell, beside=False)], tmp_path)) == {"a"}  # it is kept, or computed


WAITING = """
from functools import partial
from time import sleep
from fullrank_papers.cells import computed

if __name__ == "__main__":
    list(computed({"long": partial(sleep, 3600), "longer": partial(sleep, 3600)}, workers=2))
"""


def test_workers_end_with_the_process_that_waits_for_them(tmp_path: Path) -> None:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    with subprocess.Popen([sys.executable, str(script)]) as process:
        try:
            parent = psutil.Process(process.pid)
            wait_until(lambda: len(workers_of(parent)) == 2, what="the workers are there")
            workers = workers_of(parent)
        finally:
            process.kill()
    wait_until(lambda: not any(map(alive, workers)), what="the workers end")


def workers_of(parent: psutil.Process) -> list[psutil.Process]:
    return [child for child in parent.children() if "spawn_main" in " ".join(child.cmdline())]


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
