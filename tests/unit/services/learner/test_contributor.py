"""Contributions of a learner to a stream that is open, or that the controller has ended."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import grpc
import numpy as np
import pytest

from fullrank.common.errors import OutOfRange
from fullrank.replay.items import Gathered
from fullrank.rpc.controller_client import WorkCall
from fullrank.runs.event_log import EventLog
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_learner.active_assignment import ActiveAssignment
from fullrank_learner.contributor import Contributor
from fullrank_learner.run_context import LearnerContext
from fullrank_learner.shared_memory import SectionsDamaged, SharedMemory


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


ENDED = [asyncio.InvalidStateError("RPC already finished"), grpc.aio.InternalError("no such call")]


async def contribute(call: Call, *, batch: Gathered | Exception) -> None:
    """Contribute to an assignment whose sections lie in shared memory."""

    async def fetch() -> Gathered:
        if isinstance(batch, Exception):
            raise batch
        return batch

    no_delay: Any = SimpleNamespace(
        config=SimpleNamespace(compute=SimpleNamespace(emulate_unit_s=0.0)),
        delay_s=lambda *_: 0.0,
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


EMPTY = Gathered(np.empty((0, 1), np.float32), 0)


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
