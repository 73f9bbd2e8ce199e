"""A replay service over a real server, for the tests of this package."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.channel import PLAINTEXT, open_channel
from fullrank.net.messages import run_term_message, sample_message
from fullrank.net.replay_client import ReplayClient, append_requests
from fullrank.net.server import Server
from fullrank.replay.fence import Fence
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import TABLE
from fullrank.runs.events import EventLog
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub
from fullrank_replay.servicer import ReplayServicer

if TYPE_CHECKING:
    from fullrank.v1.replay_pb2_grpc import ReplayServiceAsyncStub

ROW_SIZE = 3
CAPACITY = 10
RUN_TERM = RunTerm("run", 1)
KEY = table_key(RUN_TERM.run, TABLE)


@dataclass(frozen=True, slots=True)
class Replay:
    """A serving replay service, and two ways to call it."""

    client: ReplayClient
    stub: "ReplayServiceAsyncStub"
    address: str
    servicer: ReplayServicer
    store: Store

    @property
    def head(self) -> int:
        """One past the last row that the table holds."""
        return self.store.get(KEY).head

    async def append(self, messages: Sequence[pb.AcceptBlocksRequest]) -> pb.AcceptBlocksResponse:
        """Make one append of these messages."""
        return await self.stub.AcceptBlocks(iter(messages), timeout=WAIT_S)

    async def refused(
        self, messages: Sequence[pb.AcceptBlocksRequest]
    ) -> tuple[grpc.StatusCode, str]:
        """Status and details with which an append is refused."""
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self.append(messages)
        return raised.value.code(), raised.value.details() or ""


@asynccontextmanager
async def serving(
    *, row_size: int = ROW_SIZE, capacity: int = CAPACITY, directory: Path | None = None
) -> AsyncIterator[Replay]:
    """A service with an empty table."""
    store = Store(directory, sync=False)
    service = ReplayServicer(store, Fence(None), EventLog())
    server = Server(
        pb.DESCRIPTOR.services_by_name["ReplayService"],
        service,
        security=PLAINTEXT,
        prebuilt=frozenset({"GetSamples"}),
    )
    address = await server.start("127.0.0.1:0")
    client = ReplayClient(address, deadline_s=WAIT_S)
    async with open_channel(address) as channel:
        await client.open_table(row_size=row_size, capacity=capacity, head=0, run_term=RUN_TERM)
        yield Replay(client, ReplayServiceStub(channel), address, service, store)
        await client.close()
    await server.stop()


def rows(count: int, *, first: int = 0, row_size: int = ROW_SIZE) -> FloatArray:
    """Row p holds p x row_size, ..., so that every position is distinguishable."""
    start, end = first * row_size, (first + count) * row_size
    return np.arange(start, end, dtype=np.float32).reshape(count, row_size)


def append(data: FloatArray, *, at: int = 0, table: str = TABLE) -> list[pb.AcceptBlocksRequest]:
    return list(append_requests(table, at, data, run_term=run_term_message(RUN_TERM)))


def sample(*, tail: int = 0, head: int = 4, size: int = 8, iteration: int = 0) -> Sample:
    return Sample(table=TABLE, seed=1, iteration=iteration, tail=tail, head=head, size=size)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def drawn(client: ReplayClient, wanted: Sample, *, row_size: int = ROW_SIZE) -> FloatArray:
    return (await client.get_sample(sample_message(wanted), row_size=row_size)).rows
