"""A writer or reader that is too fast for the other waits, but not for ever; memory is bounded."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import OutOfRange
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.channel import PLAINTEXT, open_channel
from fullrank.net.errors import RETRY_AFTER
from fullrank.net.messages import run_term_message, sample_message
from fullrank.net.replay_client import ReplayClient, append_requests
from fullrank.net.server import Server
from fullrank.replay.fence import Fence
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store
from fullrank.replay.table import TABLE
from fullrank.runs.events import EventLog
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub
from fullrank_replay import appends, pacing, servicer
from fullrank_replay.servicer import ReplayServicer

pytestmark = pytest.mark.integration

ROW_SIZE, CAPACITY, SHORT_S = 2, 10, 0.05
RUN_TERM = RunTerm("run", 1)


@dataclass
class Pair:
    """A replay service with a writer and a reader."""

    service: ReplayServicer
    address: str
    writer: ReplayClient
    reader: ReplayClient

    async def read(self, *, tail: int, head: int) -> FloatArray:
        sample = Sample(table=TABLE, seed=1, iteration=head, tail=tail, head=head, size=4)
        out = (await self.reader.get_sample(sample_message(sample), row_size=ROW_SIZE)).rows
        assert np.array_equal(out[:, 0], sample.positions())
        return out

    def write(self, first: int, count: int) -> "asyncio.Task[int]":
        positions = np.arange(first, first + count, dtype=np.float32)
        rows = np.repeat(positions[:, None], ROW_SIZE, axis=1)
        return asyncio.create_task(self.writer.append(first, rows))

    async def stalled(self) -> None:
        """Store 20 rows after the reader has seen 10: all rows held are unseen."""
        await self.write(0, CAPACITY)
        await self.read(tail=0, head=CAPACITY)
        await self.write(CAPACITY, CAPACITY)


@pytest.fixture
async def pair(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(pacing, "PATIENCE_S", WAIT_S)
    service = ReplayServicer(Store(None, sync=False), Fence(None), EventLog())
    server = Server(
        pb.DESCRIPTOR.services_by_name["ReplayService"],
        service,
        security=PLAINTEXT,
        prebuilt=frozenset({"GetSamples"}),
    )
    address = await server.start("127.0.0.1:0")
    writer, reader = (ReplayClient(address, deadline_s=WAIT_S) for _ in range(2))
    await writer.open_table(row_size=ROW_SIZE, capacity=CAPACITY, head=0, run_term=RUN_TERM)
    reader.under(RUN_TERM)
    yield Pair(service, address, writer, reader)
    await writer.close()
    await reader.close()
    await server.stop()


async def test_a_writer_that_nobody_reads_from_waits_until_somebody_does(pair: Pair) -> None:
    await pair.stalled()
    writing = pair.write(2 * CAPACITY, 3)
    await eventually(lambda: pair.service._appends.room.count == 1, what="the append waits")
    await pair.read(tail=CAPACITY, head=2 * CAPACITY)  # nothing was evicted meanwhile
    assert await asyncio.wait_for(writing, WAIT_S) == 2 * CAPACITY + 3


async def test_a_writer_that_waited_too_long_is_told_when_to_try_again_and_does(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "PATIENCE_S", SHORT_S)
    monkeypatch.setattr(appends, "RETRY_AFTER_S", SHORT_S)
    refusals: list[grpc.aio.AioRpcError] = []
    await pair.stalled()
    stub = pair.writer._stub
    append = stub.AcceptBlocks

    async def noted(
        requests: Iterator[pb.AcceptBlocksRequest], **kwargs: Any
    ) -> pb.AcceptBlocksResponse:
        try:
            return await append(requests, **kwargs)
        except grpc.aio.AioRpcError as error:
            refusals.append(error)
            raise

    monkeypatch.setattr(stub, "AcceptBlocks", noted)
    writing = pair.write(2 * CAPACITY, 3)
    await eventually(lambda: len(refusals) >= 2, what="the writer tries again")
    for each in refusals:
        assert each.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "an append up to position 23 would evict" in (each.details() or "")
        assert (RETRY_AFTER, "0.050") in tuple(each.trailing_metadata() or ())
    await pair.read(tail=CAPACITY, head=2 * CAPACITY)
    assert await asyncio.wait_for(writing, WAIT_S) == 2 * CAPACITY + 3


async def test_appends_that_wait_take_a_bounded_room(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "APPENDS", 3)
    await pair.stalled()
    writing = [pair.write(2 * CAPACITY, 3) for _ in range(3)]
    await eventually(lambda: pair.service._appends.room.count == 3, what="the appends wait")
    rows = np.zeros((1, ROW_SIZE), np.float32)
    surplus = append_requests(TABLE, 0, rows, run_term=run_term_message(RUN_TERM))
    call = pair.writer._stub.AcceptBlocks(surplus, timeout=WAIT_S)
    assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "3 appends of 72 bytes wait already" in await call.details()
    await pair.read(tail=CAPACITY, head=2 * CAPACITY)
    assert await asyncio.gather(*writing) == [2 * CAPACITY + 3] * 3
    assert pair.service._appends.room.count == 0


async def test_a_reader_of_what_never_comes_is_told_so(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "PATIENCE_S", SHORT_S)
    await pair.write(0, 4)
    with pytest.raises(OutOfRange, match="position 5 is not written yet: head 4"):
        await pair.read(tail=0, head=6)
    await pair.read(tail=0, head=4)


async def test_a_reader_that_stands_still_gives_its_room_to_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 4 * 2**20
    monkeypatch.setattr(servicer, "SEND_S", SHORT_S)
    monkeypatch.setattr(servicer, "MINIBATCH_BYTES", 4 * size * ROW_SIZE)
    monkeypatch.setattr(servicer, "RETRY_AFTER_S", SHORT_S)
    await pair.write(0, 4)
    large = Sample(table=TABLE, seed=1, iteration=0, tail=0, head=4, size=size)
    async with open_channel(pair.address) as channel:
        still = ReplayServiceStub(channel).GetSamples()
        await still.write(pb.GetSamplesRequest(sample=sample_message(large), run=RUN_TERM.run))
        assert isinstance(await still.read(), pb.GetSamplesResponse)  # and no more
        await pair.read(tail=0, head=4)
