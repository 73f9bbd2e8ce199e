"""A peer that dials and stays silent is disconnected and blocks no other."""

import asyncio
from pathlib import Path

import pytest
from grpc import StatusCode
from tests.fakes import Fault
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S, eventually

from fullrank import __version__
from fullrank.net import server
from fullrank.net.controller_client import ControllerClient
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners import servicer

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")


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
    monkeypatch.setattr(servicer, "READY_S" if introduced else "HELLO_S", 0.5)
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
