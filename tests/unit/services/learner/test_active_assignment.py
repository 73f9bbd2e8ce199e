"""An assignment in progress and its abandonment."""

import asyncio

import numpy as np
import pytest
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import Cancelled
from fullrank.replay.items import Gathered
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.active_assignment import ActiveAssignment


async def fetch() -> Gathered:
    return Gathered(np.empty((0, 0), np.float32), 0)


class Work:
    """Work that heeds no cancellation until it is released, as a computing thread."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def __call__(self) -> None:
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            return


@pytest.fixture
async def work() -> Work:
    return Work()


async def begin(work: Work) -> ActiveAssignment:
    batch = asyncio.create_task(fetch())
    await batch
    return ActiveAssignment(
        message=pb.Assignment(), batch=batch, missing=[], task=asyncio.create_task(work())
    )


async def test_an_assignment_is_abandoned_once_its_work_has_ended(work: Work) -> None:
    assignment = await begin(work)
    abandoning = asyncio.create_task(assignment.abandon())
    await eventually(assignment.abandoned.is_set, what="the work is told to stop")
    assert not abandoning.done()
    work.released.set()
    await abandoning
    assert assignment.task is not None
    assert assignment.task.done()


async def test_a_cancellation_while_the_work_winds_down_is_not_lost(work: Work) -> None:
    """A learner that is told to stop at this moment would otherwise dial again, for ever."""
    assignment = await begin(work)
    abandoning = asyncio.create_task(assignment.abandon())
    await eventually(assignment.abandoned.is_set, what="the work is told to stop")
    abandoning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await abandoning
    work.released.set()


async def test_an_assignment_whose_minibatch_does_not_come_can_be_abandoned() -> None:
    """Replay may be away for long; the learner goes on with what the controller sends next."""
    never: asyncio.Future[Gathered] = asyncio.get_running_loop().create_future()

    async def fetching() -> Gathered:
        return await never

    assignment = ActiveAssignment(
        message=pb.Assignment(), batch=asyncio.create_task(fetching()), missing=[]
    )

    async def contribute() -> None:
        with pytest.raises(Cancelled, match="is abandoned"):
            await assignment.minibatch()

    assignment.task = asyncio.create_task(contribute())
    await asyncio.sleep(0)  # it waits
    await asyncio.wait_for(assignment.abandon(), WAIT_S)
    await assignment.task
    assert assignment.batch.cancelled()
