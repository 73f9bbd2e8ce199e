"""The host of a run: orders that are tasks, and those that plain functions execute."""

import pytest

from fullrank.common.errors import ConfigError
from fullrank.run.machine import Program, RunMachine
from fullrank.run.orders import Compute, Draw, RunOrder
from fullrank_controller.host import Execute, Host


async def execute(order: RunOrder) -> None:
    """Return at once, as a task."""


async def test_an_order_that_a_plain_function_executes_is_done_on_its_return() -> None:
    drawn: list[RunOrder] = []
    handlers: dict[type[RunOrder], Execute] = dict.fromkeys(RunOrder.__subclasses__(), execute)
    machine = RunMachine(Program(iterations=3))
    await Host(machine, handlers | {Draw: drawn.append}).drive()
    assert (machine.applied, drawn) == (3, [Draw(0), Draw(1), Draw(2)])


async def test_what_a_plain_function_raises_ends_the_run() -> None:
    begun: list[RunOrder] = []

    def refuse(order: Draw) -> None:
        raise ConfigError("there is nothing to draw from")

    handlers: dict[type[RunOrder], Execute] = dict.fromkeys(RunOrder.__subclasses__(), execute)
    host = Host(RunMachine(Program(iterations=1)), handlers | {Draw: refuse, Compute: begun.append})
    with pytest.raises(ConfigError, match="nothing to draw"):
        await host.drive()
    assert not begun
