"""The driver executes the orders of a run so that no effect overtakes what it rests on."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.services.controller.builders import make_config, make_run

from fullrank.common.errors import ConfigError, StorageFailed
from fullrank.config.toml import read_config
from fullrank.run.machine import Program, RunMachine
from fullrank.run.orders import RunOrder, TakeCheckpoint
from fullrank.runs.identity import CONFIGURATION
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.driver import Driver
from fullrank_controller.host import Host
from fullrank_controller.learners.servicer import ControllerServicer


def term_of(**parts: Any) -> SimpleNamespace:
    """The parts of a term that a driver keeps, of which it is given some."""
    defaults = {
        "config": make_config(),
        "run": make_run(),
        "training": SimpleNamespace(
            collector=SimpleNamespace(agents=()),
            problem=SimpleNamespace(data=SimpleNamespace(batch_size=1)),
        ),
        "directory": SimpleNamespace(caveats=()),
        "keep_caveat": None,
        "store": None,
        "watchdog": SimpleNamespace(phase=lambda name: nullcontext()),
    }
    return SimpleNamespace(**defaults | parts)


async def test_a_stopped_run_is_checkpointed_once_nothing_is_played() -> None:
    """The state of environments that are stepped on another thread is that of no iteration."""
    played, saved = asyncio.Event(), []

    async def checkpoint(*, committed: int, head: int) -> None:
        saved.append(committed)

    term = term_of(store=SimpleNamespace(checkpoint=checkpoint))
    pipeline = SimpleNamespace(finish_playing=played.wait)
    driver = Driver(cast(Any, term), cast(Any, pipeline), cast(Any, None))
    checkpointing = asyncio.ensure_future(driver._checkpoint(TakeCheckpoint(5)))
    await asyncio.wait({checkpointing}, timeout=0)
    assert saved == []
    played.set()
    await checkpointing
    assert saved == [5]


class Ordered:
    """A run of ten iterations under way in a directory, and the service that takes its orders."""

    def __init__(self, path: Path) -> None:
        directory = SimpleNamespace(path=path, caveats=(), confirm=lambda: None)
        self.term = term_of(directory=directory)
        self.machine = RunMachine(Program(iterations=10))
        driver = Driver(cast(Any, self.term), cast(Any, None), cast(Any, None))
        driver._machine = self.machine
        driver._host = Host(self.machine, dict.fromkeys(RunOrder.__subclasses__(), _never))
        self._servicer = ControllerServicer(cast(Any, self.term), driver, asyncio.Event())

    async def lengthen(self, iterations: int) -> None:
        """Order another number of iterations."""
        request = pb.SetIterationsRequest(iterations=iterations)
        await self._servicer.SetIterations(request, cast(Any, None))


async def _never(order: RunOrder) -> None:
    """Leave an order undone."""
    await asyncio.Event().wait()


async def test_another_number_of_iterations_that_cannot_be_written_changes_nothing(
    tmp_path: Path,
) -> None:
    ordered = Ordered(tmp_path)
    (tmp_path / CONFIGURATION).mkdir()  # no file takes its place
    with pytest.raises(StorageFailed, match=f"cannot write .*{CONFIGURATION}.*; make room and"):
        await ordered.lengthen(20)
    assert ordered.machine.program.iterations == ordered.term.run.progress.iterations == 10


async def test_of_orders_at_once_the_run_and_its_file_have_the_last(tmp_path: Path) -> None:
    ordered = Ordered(tmp_path)
    await asyncio.gather(*map(ordered.lengthen, (20, 30, 25)))
    with pytest.raises(ConfigError, match="must be at least"):
        await ordered.lengthen(-1 % 2**64)
    assert ordered.machine.program.iterations == ordered.term.run.progress.iterations == 25
    assert read_config(tmp_path).iterations == 25
