"""Clients that exceed a limit, or dial and stay silent, are refused, and others go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import StatusCode
from tests.fakes import Fault
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S, eventually

from fullrank import __version__
from fullrank.common.errors import ServiceLost
from fullrank.net import limits, server
from fullrank.net.channel import open_channel
from fullrank.net.controller_client import ControllerClient
from fullrank.net.server import METADATA_BYTES
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.controller_pb2_grpc import ControllerServiceStub
from fullrank_controller import streams
from fullrank_controller.learners import servicer

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
    monkeypatch.setattr("fullrank_controller.streams.HELLO_S", WAIT_S)
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


async def test_a_connection_that_never_speaks_http_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = ("grpc.server_handshake_timeout_ms", 300)
    monkeypatch.setattr(server, "OPTIONS", [brief, *server.OPTIONS])
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        host, _, port = (await cluster.address()).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(WAIT_S):
            while await reader.read(1024):  # the server's own settings come first
                continue
        writer.close()
        cluster.learners(3)
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)


@pytest.mark.parametrize("introduced", [False, True])
async def test_a_stream_that_does_not_go_on_is_cut_and_its_index_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, introduced: bool
) -> None:
    module, limit = (servicer, "READY_S") if introduced else (streams, "HELLO_S")
    monkeypatch.setattr(module, limit, 0.5)
    async with Cluster(tmp_path, resolved("code.name=cyclic", "learners=4")) as cluster:
        cluster.serve()
        idle = ControllerClient(await cluster.address())
        call = idle.work()
        if introduced:
            hello = pb.Hello(version=__version__, host="idle")
            await call.write(pb.LearnerMessage(hello=hello).SerializeToString())
            welcome = await call.read()
            assert isinstance(welcome, pb.ControllerMessage)
            assert welcome.welcome.learner == 0
        assert await asyncio.wait_for(call.code(), WAIT_S) is StatusCode.DEADLINE_EXCEEDED
        assert f"{'ready' if introduced else 'hello'} did not come within" in await call.details()
        monkeypatch.undo()
        fake, _ = await cluster.fake(Fault.OK)
        cluster.learners(3)
        status = await cluster.finished()
        await eventually(lambda: fake.answered > 0, what="an answer, perhaps a late one")
        await idle.close()
    assert [each.learner for each in status.learners if each.host == "fake"] == [0]
    assert cluster.digests() == reference_digests(cluster.config)
