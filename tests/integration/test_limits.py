"""Clients that exceed a limit are refused, and others are not affected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S

from fullrank.common.errors import ServiceLost
from fullrank.net import limits
from fullrank.net.channel import open_channel
from fullrank.net.controller_client import ControllerClient
from fullrank.net.server import METADATA_BYTES
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.controller_pb2_grpc import ControllerServiceStub

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")
GET_STATUS = "/fullrank.v1.ControllerService/GetStatus"


@asynccontextmanager
async def controller(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A run that waits for learners."""
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        await cluster.address()
        yield cluster


async def test_streams_beyond_the_limit_of_one_connection_are_refused_and_others_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "AT_ONCE", 8)
    monkeypatch.setattr("fullrank_controller.learners.servicer.HELLO_S", WAIT_S)
    async with controller(tmp_path) as cluster:
        greedy = ControllerClient(await cluster.address())
        calls = [greedy.work() for _ in range(40)]
        ended = [asyncio.ensure_future(call.code()) for call in calls]
        while sum(code.done() for code in ended) < 32:
            await asyncio.wait(
                [code for code in ended if not code.done()],
                return_when=asyncio.FIRST_COMPLETED,
                timeout=WAIT_S,
            )
        refused = [code.result() for code in ended if code.done()]
        assert refused == [StatusCode.RESOURCE_EXHAUSTED] * 32
        cluster.learners(3)
        await cluster.finished()
        await greedy.close()
    assert cluster.digests() == reference_digests(cluster.config)


async def poll_status(client: ControllerClient) -> None:
    while True:
        await client.status(timeout_s=WAIT_S)


async def test_calls_beyond_the_rate_of_one_connection_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BURST", 5.0)
    monkeypatch.setattr(limits, "PER_S", 0.25)
    async with controller(tmp_path) as cluster:
        address = await cluster.address()
        hasty, calm = ControllerClient(address), ControllerClient(address)
        with pytest.raises(ServiceLost, match=r"RESOURCE_EXHAUSTED: .* call less often"):
            await poll_status(hasty)
        await calm.status()
        await hasty.close()
        await calm.close()


async def test_long_metadata_are_refused_at_the_limit_and_not_now_and_then(tmp_path: Path) -> None:
    async with controller(tmp_path) as cluster, open_channel(await cluster.address()) as channel:
        stub = ControllerServiceStub(channel)
        for _ in range(20):
            call = stub.GetStatus(
                pb.GetStatusRequest(), metadata=(("x", "y" * METADATA_BYTES),), timeout=WAIT_S
            )
            assert await call.code() is StatusCode.RESOURCE_EXHAUSTED
        assert await stub.GetStatus(pb.GetStatusRequest(), timeout=WAIT_S)


async def test_a_message_that_would_have_to_be_inflated_is_refused(tmp_path: Path) -> None:
    async with controller(tmp_path) as cluster:
        async with grpc.aio.insecure_channel(
            await cluster.address(), compression=grpc.Compression.Gzip
        ) as channel:
            dial: Any = channel.unary_unary(GET_STATUS)
            call = dial(bytes(2**22 - 1), timeout=WAIT_S)
            assert await call.code() is StatusCode.UNIMPLEMENTED
        client = ControllerClient(await cluster.address())
        await client.status()
        await client.close()
