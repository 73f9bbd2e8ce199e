"""Injected lateness of a learner, in virtual time: when it computes, and when its rows are sent."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.faultlab.simulation.virtual_loop import VirtualLoop

from fullrank.algorithms import DataMode, Problem, Unit
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.net.controller_client import WorkCall
from fullrank.replay.items import Gathered
from fullrank.runs.events import EventLog
from fullrank.stragglers.base import Lateness
from fullrank.training.worker import Worker
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_learner.active_assignment import ActiveAssignment
from fullrank_learner.contributor import Contributor

UNIT_S, UNITS = 1.0, 3
COSTS = np.array([1.0, 4.0, 1.0])


class Inline(Executor):
    """Runs each call in place."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **named))
        return done


class Noted:
    """Gradients that note the times at which they are computed."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        for unit in units:
            self.times.append(asyncio.get_running_loop().time())
            yield unit, np.ones(1, np.float32)

    def fingerprint(self) -> str:
        return "noted"


class Late:
    """A learner of one lateness, and the rows that it sends.

    Args:
        delay_s: Its pause before the first unit.
        factor: Multiple of its computing time.
    """

    def __init__(self, *, delay_s: float = 0.0, factor: float = 1.0) -> None:
        self.gradients = Noted()
        self.asked: list[float] = []
        self.sent: list[tuple[int, float, float]] = []
        """Row, time and reported computing time."""
        problem = Problem(
            units=tuple(Unit(agents=(index,)) for index in range(UNITS)),
            unit_sizes=(1,) * UNITS,
            sections=(),
            reads=((),) * UNITS,
            row_size=1,
            data=DataMode(),
        )

        def lateness(iteration: int, learner: int, *, time_s: float) -> Lateness:
            self.asked.append(time_s)
            return Lateness(delay_s=delay_s, factor=factor, costs=COSTS)

        context: Any = SimpleNamespace(
            config=SimpleNamespace(compute=SimpleNamespace(emulate_unit_s=UNIT_S)),
            lateness=lateness,
            worker=Worker(problem, self.gradients, seed=0),
        )
        self.contributor = Contributor(
            cast(WorkCall, self),
            peer="controller",
            learner=0,
            context=context,
            pool=cast(Any, Inline()),
            memory=None,
            event_log=EventLog(),
            began_at=-100.0,
        )

    async def write(self, message: bytes) -> None:
        said = pb.LearnerMessage.FromString(message)
        if said.HasField("coded"):
            now = asyncio.get_running_loop().time()
            self.sent.append((said.coded.row, now, said.coded.compute_s))

    def assigned(self, *units: UnitIndex, iteration: int = 0) -> ActiveAssignment:
        """A row for each unit, from now on."""

        async def fetch() -> Gathered:
            return Gathered(np.empty((0, 1), np.float32), 0)

        rows = [pb.Row(row=unit, units=[unit], coefficients=[1.0]) for unit in units]
        message = pb.Assignment(ids=Ids(term=1, iteration=iteration), rows=rows)
        work = ActiveAssignment(message, asyncio.create_task(fetch()), [])
        work.complete_at = asyncio.get_running_loop().time()
        work.task = asyncio.create_task(self.contributor.contribute(work))
        return work

    async def contribute(self, *units: UnitIndex, iteration: int = 0) -> None:
        """Compute and send a row for each unit."""
        task = self.assigned(*units, iteration=iteration).task
        assert task is not None
        await task


def in_virtual_time(life: Awaitable[None]) -> None:
    loop = VirtualLoop()

    async def run() -> None:
        await life

    loop.run_until_complete(run())
    loop.close()


def test_the_delay_is_a_pause_before_the_first_unit_and_holds_no_row_back() -> None:
    late = Late(delay_s=5.0)
    in_virtual_time(late.contribute(0, 2))
    assert late.gradients.times == [5.0, 5.0]
    assert late.sent == [(0, 6.0, 1.0), (2, 7.0, 2.0)]


def test_a_slow_machine_takes_a_multiple_of_its_time_for_each_unit() -> None:
    late = Late(factor=3.0)
    in_virtual_time(late.contribute(0, 2))
    assert late.sent == [(0, 3.0, 3.0), (2, 6.0, 6.0)]


def test_a_slow_unit_takes_longer_and_delays_only_the_rows_after_it() -> None:
    late = Late()
    in_virtual_time(late.contribute(0, 1, 2))
    assert late.sent == [(0, 1.0, 1.0), (1, 5.0, 5.0), (2, 6.0, 6.0)]


def test_further_work_of_an_iteration_does_not_pay_the_delay_again_but_the_next_does() -> None:
    late = Late(delay_s=5.0, factor=2.0)

    async def life() -> None:
        await late.contribute(0)
        await late.contribute(2)
        await late.contribute(0, iteration=1)

    in_virtual_time(life())
    assert [at for _, at, _ in late.sent] == [7.0, 9.0, 16.0]


def test_an_assignment_that_replaces_another_waits_for_the_rest_of_the_delay() -> None:
    late = Late(delay_s=5.0)

    async def life() -> None:
        first = late.assigned(0)
        await asyncio.sleep(2.0)
        await first.abandon()
        await late.contribute(2)

    in_virtual_time(life())
    assert late.sent == [(2, 6.0, 1.0)]


@pytest.mark.parametrize("delay_s", [9.0, inf])
def test_a_learner_that_pauses_when_the_round_ends_computes_and_sends_nothing(
    delay_s: float,
) -> None:
    late = Late(delay_s=delay_s)

    async def life() -> None:
        work = late.assigned(0, 2)
        await asyncio.sleep(2.0)
        await work.abandon()

    in_virtual_time(life())
    assert not late.gradients.times
    assert not late.sent


def test_the_model_is_asked_for_the_time_since_the_run_began() -> None:
    late = Late()

    async def life() -> None:
        await asyncio.sleep(2.0)
        await late.contribute(0)

    in_virtual_time(life())
    assert late.asked == [102.0]
