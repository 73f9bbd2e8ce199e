"""Calls outlast the absence of a replay service where their caller says so."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.addresses import free_address
from tests.waiting import WAIT_S

from fullrank.common.errors import ConfigError, OutOfRange, ServiceLost, StaleTerm
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.channel import PLAINTEXT
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import Server
from fullrank.replay.fence import Fence
from fullrank.replay.store import Store
from fullrank.runs.events import EventLog
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.servicer import ReplayServicer

from .replay_service import CAPACITY, ROW_SIZE, RUN_TERM, eventually, rows, sample

DEADLINE_S = 1.0
"""An outage is said after this; a call that takes longer on a slow machine is made again."""


class Outages:
    """A replay service that comes and goes at one address, over the same tables."""

    def __init__(self) -> None:
        self.address = free_address()
        self._servicer = ReplayServicer(Store(None, sync=False), Fence(None), EventLog())

    @asynccontextmanager
    async def over(self) -> AsyncIterator[None]:
        """Serve for a while."""
        server = Server(
            pb.DESCRIPTOR.services_by_name["ReplayService"],
            self._servicer,
            security=PLAINTEXT,
            prebuilt=frozenset({"GetSamples"}),
        )
        await server.start(self.address)
        yield
        await server.stop(drain_s=0)


async def opened(client: ReplayClient, run_term: RunTerm, *, capacity: int = CAPACITY) -> object:
    return await client.open_table(row_size=ROW_SIZE, capacity=capacity, head=0, run_term=run_term)


@pytest.mark.integration
async def test_every_call_goes_on_once_the_service_is_back() -> None:
    said: list[str] = []
    outages = Outages()
    client = ReplayClient(outages.address, deadline_s=DEADLINE_S, away=said.append)
    wanted = sample_message(sample())
    drawn: list[FloatArray] = []

    async def draw() -> None:
        drawn.append((await client.await_sample(wanted, row_size=ROW_SIZE)).rows)

    calls: tuple[Callable[[], Coroutine[Any, Any, object]], ...] = (
        partial(opened, client, RUN_TERM._replace(instance=5)),
        partial(client.append, 0, rows(4)),
        draw,
    )
    for call in calls:
        said.clear()
        calling = asyncio.create_task(call())
        await eventually(lambda: bool(said))
        assert not calling.done()
        async with outages.over():
            await asyncio.wait_for(calling, WAIT_S)
        assert said[-1] == ""
        assert all(outages.address in reason for reason in said[:-1])
    assert np.array_equal(drawn[0], rows(4)[sample().positions()])
    await client.close()


async def test_what_is_no_outage_is_raised_at_once() -> None:
    outages = Outages()
    client = ReplayClient(outages.address, deadline_s=WAIT_S, away=pytest.fail)
    async with outages.over():
        await opened(client, RUN_TERM)
        with pytest.raises(OutOfRange):
            await client.append(3, rows(1))
        with pytest.raises(StaleTerm):
            await opened(client, RUN_TERM)
        with pytest.raises(ConfigError):
            await opened(client, RUN_TERM._replace(term=2), capacity=1000)
    await client.close()


async def test_a_caller_that_waits_for_nobody_is_told_at_its_deadline() -> None:
    outages = Outages()
    audit = ReplayClient(outages.address, deadline_s=0.1, away=pytest.fail)
    with pytest.raises(ServiceLost):
        await audit.get_sample(sample_message(sample()), row_size=ROW_SIZE)
    await audit.close()
    reader = ReplayClient(outages.address, deadline_s=0.1)
    with pytest.raises(ServiceLost):
        await reader.append(0, rows(1))
    await reader.close()
