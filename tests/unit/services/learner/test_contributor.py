"""Contributions of a learner to a stream that is open, or that the controller has ended."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import grpc
import numpy as np
import pytest
from numpy.typing import DTypeLike

from fullrank.algorithms import DataMode, Problem, Unit
from fullrank.common.errors import OutOfRange
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.net.controller_client import WorkCall
from fullrank.replay.items import Gathered
from fullrank.runs.events import EventLog
from fullrank.stragglers.base import Lateness
from fullrank.training.worker import Worker
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_learner import contributor as contributing
from fullrank_learner.active_assignment import ActiveAssignment
from fullrank_learner.contributor import Contributor, SectionsDamaged, SharedMemory
from fullrank_learner.run_context import LearnerContext


class Call:
    """A stream; with an error, it has ended and every operation fails with that error."""

    def __init__(self, ended: Exception | None = None) -> None:
        self.ended = ended
        self.written: list[pb.LearnerMessage] = []

    async def write(self, message: bytes) -> None:
        self._check()
        self.written.append(pb.LearnerMessage.FromString(message))

    async def done_writing(self) -> None:
        self._check()
        self.written.append(pb.LearnerMessage())

    def _check(self) -> None:
        if self.ended is not None:
            raise self.ended


class Overwritten:
    """Memory in which the controller has overwritten the sections meanwhile."""

    def read(self, *_: Any) -> None:
        raise SectionsDamaged


PUNCTUAL = Lateness(delay_s=0.0, factor=1.0, costs=np.ones(1))
EMPTY = Gathered(np.empty((0, 1), np.float32), 0)


class Noted:
    """Gradients that note the threads on which they are computed."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        self.threads.append(threading.current_thread().name)
        yield from ((unit, np.ones(1, np.float32)) for unit in units)

    def fingerprint(self) -> str:
        return "noted"


async def two_assignments(coefficient: float = 1.0) -> tuple[list[str], list[pb.LearnerMessage]]:
    """Threads on which a learner computes a row twice, and what it sends."""
    gradients, call = Noted(), Call()
    problem = Problem(
        units=(Unit(agents=(0,)),),
        unit_sizes=(1,),
        sections=(),
        reads=((),),
        row_size=1,
        data=DataMode(),
    )
    context: Any = SimpleNamespace(
        config=SimpleNamespace(compute=SimpleNamespace(emulate_unit_s=0.0)),
        lateness=lambda *_, **__: PUNCTUAL,
        worker=Worker(problem, gradients, seed=0),
    )

    async def fetch() -> Gathered:
        return EMPTY

    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        contributor = Contributor(
            cast(WorkCall, call),
            peer="controller",
            learner=0,
            context=context,
            pool=pool,
            memory=None,
            event_log=EventLog(),
        )
        for iteration in range(2):
            row = pb.Row(row=0, units=[0], coefficients=[coefficient])
            message = pb.Assignment(ids=Ids(iteration=iteration), rows=[row])
            await contributor.contribute(
                ActiveAssignment(message, asyncio.create_task(fetch()), [])
            )
    assert [message.coded.ids.iteration for message in call.written] == [0, 1]
    return gradients.threads, call.written


ENDED = [asyncio.InvalidStateError("RPC already finished"), grpc.aio.InternalError("no such call")]


async def contribute(call: Call, *, batch: Gathered | Exception) -> None:
    """Contribute to an assignment whose sections lie in shared memory."""

    async def fetch() -> Gathered:
        if isinstance(batch, Exception):
            raise batch
        return batch

    no_delay: Any = SimpleNamespace(
        config=SimpleNamespace(compute=SimpleNamespace(emulate_unit_s=0.0)),
        lateness=lambda *_, **__: PUNCTUAL,
        algorithm=SimpleNamespace(parameters=None),
    )
    message = pb.Assignment(ids=Ids(iteration=7), rows=[pb.Row(row=0, units=[0])], offsets=[4096])
    work = ActiveAssignment(message, asyncio.create_task(fetch()), [])
    with ThreadPoolExecutor(1) as pool:
        contributor = Contributor(
            cast(WorkCall, call),
            peer="controller",
            learner=0,
            context=cast(LearnerContext, no_delay),
            pool=pool,
            memory=cast(SharedMemory, Overwritten()),
            event_log=cast(EventLog, None),
        )
        await contributor.contribute(work)


async def test_a_learner_asks_for_sections_that_were_overwritten() -> None:
    call = Call()
    await contribute(call, batch=EMPTY)
    (asked,) = call.written
    assert asked.unreadable.ids.iteration == 7


@pytest.mark.parametrize("ended", ENDED)
async def test_a_learner_given_up_survives_that_its_sections_were_overwritten(
    ended: Exception,
) -> None:
    """So one wakes that was frozen before it read them; it dials again only if nothing raises."""
    await contribute(Call(ended), batch=EMPTY)


@pytest.mark.parametrize("ended", ENDED)
async def test_a_learner_whose_work_failed_survives_that_its_stream_ended_before(
    ended: Exception,
) -> None:
    await contribute(Call(ended), batch=OutOfRange("evicted"))


async def test_a_learner_whose_work_failed_closes_its_side_of_the_stream() -> None:
    call = Call()
    await contribute(call, batch=OutOfRange("evicted"))
    assert call.written == [pb.LearnerMessage()]


async def test_a_learner_computes_on_the_event_loop_after_an_assignment_that_was_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contributing, "QUICK_S", np.inf)
    assert (await two_assignments())[0] == ["pool_0", "MainThread"]


async def test_a_learner_that_is_slow_keeps_the_event_loop_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contributing, "QUICK_S", 0.0)
    assert (await two_assignments())[0] == ["pool_0", "pool_0"]


@pytest.mark.parametrize(("coefficient", "precision"), [(1.0, np.float32), (0.5, np.float64)])
async def test_a_unit_is_sent_in_single_precision_where_it_is_alone_as_it_is(
    coefficient: float, precision: DTypeLike
) -> None:
    _, sent = await two_assignments(coefficient)
    assert [chunk.data for message in sent for chunk in message.chunks] == [
        np.array([coefficient], precision).tobytes()
    ] * 2
