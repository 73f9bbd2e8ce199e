"""An assignment in progress and its abandonment."""

import asyncio

import numpy as np
import pytest
from tests.waiting import eventually

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
