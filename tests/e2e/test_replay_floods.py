"""Floods of replay are refused; its memory stays bounded, and other clients get minibatches."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from pathlib import Path

import grpc
import numpy as np
import psutil
import pytest
from grpc import StatusCode
from tests.addresses import free_address
from tests.e2e.commands import settings
from tests.waiting import WAIT_S

from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.channel import UNLIMITED, open_channel
from fullrank.net.limits import AT_ONCE
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import METADATA_BYTES
from fullrank.replay.samplers import Sample
from fullrank.replay.table import TABLE
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub
from fullrank.v1.tensor_pb2 import Chunk

pytestmark = pytest.mark.e2e

GROWTH_BYTES = 64 * 2**20
MESSAGE_BYTES = 64 * 2**20
STREAMS = 10_000
ROWS: FloatArray = np.arange(200, dtype=np.float32).reshape(50, 4)
SAMPLE = Sample(table=TABLE, seed=0, iteration=0, tail=0, head=50, size=1024)


class Flooded:
    """A replay service in a process of its own, with a table of 50 rows."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: str) -> None:
        self.process, self.address = psutil.Process(process.pid), address
        self.client = ReplayClient(address, deadline_s=WAIT_S)

    async def serves(self) -> None:
        """Check that another client gets its minibatch."""
        row_size = ROWS.shape[1]
        out = (await self.client.get_sample(sample_message(SAMPLE), row_size=row_size)).rows
        assert np.array_equal(out, ROWS[SAMPLE.positions()])


def started(run_dir: Path, address: str) -> "subprocess.Popen[bytes]":
    words = ["serve", "replay", "--run-dir", str(run_dir), *settings(f"replay.address={address}")]
    return subprocess.Popen([sys.executable, "-m", "fullrank", *words])


@pytest.fixture
async def replay(tmp_path: Path) -> AsyncIterator[Flooded]:
    address = free_address()
    process = started(tmp_path, address)
    flooded = Flooded(process, address)
    run_term = RunTerm("run", 1)
    await flooded.client.open_table(row_size=4, capacity=1000, head=0, run_term=run_term)
    await flooded.client.append(0, ROWS)
    await flooded.serves()
    yield flooded
    await flooded.client.close()
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, WAIT_S) == 0


async def oversized(address: str) -> None:
    """Messages far beyond the limit."""
    async with grpc.aio.insecure_channel(address, options=UNLIMITED) as channel:
        stub = ReplayServiceStub(channel)
        request = pb.AcceptBlocksRequest(table=TABLE, chunk=Chunk(data=bytes(MESSAGE_BYTES)))
        for _ in range(3):
            call = stub.AcceptBlocks(iter([request]), timeout=WAIT_S)
            assert await call.code() is StatusCode.RESOURCE_EXHAUSTED


async def metadata(address: str) -> None:
    """Calls with metadata beyond the limit."""
    async with open_channel(address) as channel:
        stub = ReplayServiceStub(channel)
        for _ in range(20):
            call = stub.GetSamples(metadata=(("x", "y" * METADATA_BYTES),), timeout=WAIT_S)
            assert await call.code() is StatusCode.RESOURCE_EXHAUSTED


async def compressed_messages(address: str) -> None:
    """Messages that are small until they are inflated; none is inflated."""
    async with grpc.aio.insecure_channel(
        address, compression=grpc.Compression.Gzip, options=UNLIMITED
    ) as channel:
        stub = ReplayServiceStub(channel)
        request = pb.AcceptBlocksRequest(table=TABLE, chunk=Chunk(data=bytes(MESSAGE_BYTES)))
        for _ in range(3):
            call = stub.AcceptBlocks(iter([request]), timeout=WAIT_S)
            # gRPC ends the stream with one of two codes, by chance.
            assert await call.code() in {StatusCode.UNIMPLEMENTED, StatusCode.INTERNAL}


async def streams(address: str) -> None:
    """Ten thousand streams without a request."""
    async with open_channel(address) as channel:
        stub = ReplayServiceStub(channel)
        codes = [asyncio.ensure_future(stub.GetSamples().code()) for _ in range(STREAMS)]
        ends = islice(asyncio.as_completed(codes), STREAMS - AT_ONCE)
        refused = {await end for end in ends}
        assert refused <= {StatusCode.RESOURCE_EXHAUSTED, StatusCode.UNAVAILABLE}
        assert StatusCode.RESOURCE_EXHAUSTED in refused
        for each in codes:
            each.cancel()


@pytest.mark.parametrize(
    "flood",
    [
        *(oversized, metadata, compressed_messages),
        pytest.param(streams, marks=pytest.mark.thorough),  # a minute of two cores
    ],
    ids=lambda f: f.__name__,
)
async def test_a_flood_is_refused_within_bounded_memory_and_others_are_served(
    replay: Flooded, flood: Callable[[str], Awaitable[None]]
) -> None:
    before = most = replay.process.memory_info().rss
    flooding = asyncio.ensure_future(flood(replay.address))
    while not flooding.done():
        await replay.serves()
        most = max(most, replay.process.memory_info().rss)
    await flooding
    await replay.serves()
    assert most - before < GROWTH_BYTES
