"""Hostile messages end their own call with a documented status, and services serve on."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from grpc import StatusCode
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile import garbled, hostile
from tests.integration.cluster import Cluster, resolved
from tests.unit.services.replay.replay_service import RUN_TERM, rows, sample, serving

from fullrank import __version__
from fullrank.config.tree import PluginSettings
from fullrank.host.run_directory import resolve
from fullrank.net.channel import PLAINTEXT, open_blocking_channel
from fullrank.net.codec import chunks
from fullrank.net.controller_client import ControllerClient
from fullrank.net.messages import run_term_message, sample_message
from fullrank.net.monitor import AsyncMonitor
from fullrank.net.replay_client import append_requests
from fullrank.net.server import Server
from fullrank.replay.table import TABLE
from fullrank.v1 import controller_pb2, monitor_pb2, replay_pb2, straggler_pb2
from fullrank_straggler.gate import Control, injection_of
from fullrank_straggler.server import StragglerServicer

pytestmark = pytest.mark.integration

CALL_S = 1.0
"""Deadline of a hostile call; some wait for others by intent."""
DOCUMENTED = frozenset(StatusCode) - {StatusCode.UNKNOWN, StatusCode.INTERNAL}

HELLO = controller_pb2.Hello(version=__version__, host="host")
READY = controller_pb2.Ready(fingerprint="f", probe=[b"p"], stable=True)
TERM = run_term_message(RUN_TERM)
CONTROLLER: dict[str, Sequence[Message]] = {
    "ControllerService/GetStatus": [controller_pb2.GetStatusRequest()],
    "ControllerService/Heartbeat": [controller_pb2.HeartbeatRequest()],
    "ControllerService/Work": [
        controller_pb2.LearnerMessage(hello=HELLO),
        controller_pb2.LearnerMessage(ready=READY),
        controller_pb2.LearnerMessage(coded=controller_pb2.Coded()),
    ],
    "ControllerService/Collect": [
        controller_pb2.CollectorMessage(hello=HELLO),
        controller_pb2.CollectorMessage(ready=READY),
        controller_pb2.CollectorMessage(played=controller_pb2.Played()),
    ],
}
MONITOR: dict[str, Sequence[Message]] = {
    "MonitorService/GetStatus": [controller_pb2.GetStatusRequest()],
    "MonitorService/Watch": [monitor_pb2.WatchRequest(until_now=True)],
    "MonitorService/GetCode": [monitor_pb2.GetCodeRequest()],
    "MonitorService/GetConfiguration": [monitor_pb2.GetConfigurationRequest()],
    "MonitorService/GetPolicies": [monitor_pb2.GetPoliciesRequest()],
}
REPLAY: dict[str, Sequence[Message]] = {
    "ReplayService/OpenTable": [
        replay_pb2.OpenTableRequest(
            table="other", row_size=3, capacity=10, run_term=TERM, version=__version__
        )
    ],
    "ReplayService/AcceptBlocks": list(append_requests(TABLE, 0, rows(2), run_term=TERM)),
    "ReplayService/GrantBlocks": [
        replay_pb2.GrantBlocksRequest(table=TABLE, run_term=TERM, blocks=1, most_rows=2)
    ],
    "ReplayService/StageBlock": [
        replay_pb2.StageBlockRequest(
            table=TABLE, run_term=TERM, lengths=[2], chunk=next(chunks(rows(2), array_id=0))
        )
    ],
    "ReplayService/LocateTable": [replay_pb2.LocateTableRequest(table=TABLE)],
    "ReplayService/GetSamples": [
        replay_pb2.GetSamplesRequest(sample=sample_message(sample(head=2, size=2)))
    ],
}
STRAGGLER: dict[str, Sequence[Message]] = {
    "StragglerService/GetInjection": [straggler_pb2.GetInjectionRequest()],
    "StragglerService/SetInjection": [
        straggler_pb2.SetInjectionRequest(
            model=straggler_pb2.DelayModel(name="none"), faults=straggler_pb2.Faults()
        )
    ],
}


def status_of(channel: grpc.Channel, method: str, messages: Sequence[bytes]) -> StatusCode:
    """The status with which a call ends, unary or not: on the wire all are streams.

    It blocks, since ``grpc.aio`` may show INTERNAL for a call that ended while it wrote
    (grpc/grpc#36066).
    """
    dial: Any = channel.stream_stream(f"/fullrank.v1.{method}")
    call = dial(iter(messages), timeout=CALL_S)
    with suppress(grpc.RpcError):
        for _ in call:
            pass
    code: StatusCode = call.code()
    return code


@st.composite
def callers(draw: st.DrawFn, honest: Sequence[Message]) -> list[bytes]:
    """The messages of a hostile call: as they should be up to one, which is spoilt."""
    spoilt = draw(st.integers(0, len(honest) - 1))
    whole = [message.SerializeToString() for message in honest[:spoilt]]
    bad = draw(hostile(honest[spoilt])).SerializeToString()
    return [*whole, draw(garbled(bad)) if draw(st.integers(0, 4)) == 0 else bad]


async def assail(address: str, calls: dict[str, Sequence[Message]]) -> None:
    """Make hostile calls of every method, one after the other."""

    def each(method: str) -> None:
        @given(callers(calls[method]))
        def check(messages: list[bytes]) -> None:
            assert status_of(channel, method, messages) in DOCUMENTED, method

        check()

    with open_blocking_channel(address) as channel:
        for method in calls:
            await asyncio.to_thread(each, method)


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """No handler raised what it does not mean to; gRPC's own poller may, and goes on."""
    raised = [record for record in caplog.records if record.exc_info]
    traced = [each for each in raised if "PollerCompletionQueue" not in each.getMessage()]
    assert not traced, caplog.text[-3000:]


async def test_a_controller_serves_on_after_every_hostile_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with Cluster(tmp_path, resolved("code.name=uncoded", "learners=3")) as cluster:
        cluster.serve()
        await assail(await cluster.address(), CONTROLLER)
        monitor = resolve("127.0.0.1:0", tmp_path, "monitor")
        await assail(monitor, MONITOR)
        client = ControllerClient(await cluster.address())
        assert (await client.status()).run
        await client.close()
        async with AsyncMonitor(monitor) as watching:
            assert (await watching.setup()).config.learners == 3
    check_log(caplog)


async def test_a_replay_service_serves_on_after_every_hostile_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving() as replay:
        await assail(replay.address, REPLAY)
        await replay.client.open_table(
            row_size=3, capacity=10, head=0, run_term=RUN_TERM._replace(run="next")
        )
        assert await replay.client.append(0, rows(2)) == 2
    check_log(caplog)


async def test_a_sidecar_serves_on_after_every_hostile_call(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    service = straggler_pb2.DESCRIPTOR.services_by_name["StragglerService"]
    server = Server(
        service,
        StragglerServicer(Control(injection_of(PluginSettings(name="none"), ()))),
        security=PLAINTEXT,
    )
    address = await server.start("127.0.0.1:0")
    try:
        await assail(address, STRAGGLER)
        with open_blocking_channel(address) as channel:
            honest = [straggler_pb2.GetInjectionRequest().SerializeToString()]
            method = "StragglerService/GetInjection"
            status = await asyncio.to_thread(status_of, channel, method, honest)
            assert status is StatusCode.OK
    finally:
        await server.stop()
    check_log(caplog)
