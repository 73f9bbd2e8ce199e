"""Operation of every service: health, reflection, limits and a clean end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.addresses import free_address
from tests.fakes import Fault
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S, eventually

from fullrank import __version__
from fullrank.common.errors import AddressInUse, ConfigError, NotFound, RunDirectoryInUse
from fullrank.config import load
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank.net.channel import open_channel
from fullrank.net.controller_client import ControllerClient
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.server import attach, main

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@asynccontextmanager
async def serving(tmp_path: Path, name: str) -> AsyncIterator[tuple[Cluster, grpc.aio.Channel]]:
    """A cluster whose service ``name`` listens, and a channel to it."""
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        await cluster.address()
        async with open_channel(resolve("127.0.0.1:0", tmp_path, name)) as channel:
            yield cluster, channel


@pytest.mark.parametrize("name", ["controller", "replay"])
async def test_health_says_serving_and_when_draining_not_serving(tmp_path: Path, name: str) -> None:
    service = f"fullrank.v1.{name.capitalize()}Service"
    async with serving(tmp_path, name) as (cluster, channel):
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=service)
        )
        first = await asyncio.wait_for(watch.read(), WAIT_S)
        for running in cluster.services:
            running.stop.set()
        then = await asyncio.wait_for(watch.read(), WAIT_S)
        watch.cancel()
    assert (first.status, then.status) == (SERVING, NOT_SERVING)


async def test_a_taken_port_is_refused_and_named(tmp_path: Path) -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as taken:
        address = f"127.0.0.1:{taken.sockets[0].getsockname()[1]}"
        settings = resolved(*UNCODED, f"controller.address={address}")
        async with Cluster(tmp_path / "second", settings) as other:
            other.replay()
            with pytest.raises(AddressInUse, match=f"cannot listen on {address}: it is taken"):
                await asyncio.wait_for(other.controller().task, WAIT_S)
    assert not [*(tmp_path / "second").rglob("*.journal")]


async def test_a_second_controller_of_a_run_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, "controller") as (cluster, _):
        with pytest.raises(RunDirectoryInUse, match="held by another controller"):
            await asyncio.wait_for(cluster.controller().task, WAIT_S)


async def test_a_heartbeat_counts_for_who_holds_the_stream_s_lease_alone(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        client = ControllerClient(await cluster.address())
        call = client.work()
        hello = pb.Hello(version=__version__)
        await call.write(pb.LearnerMessage(hello=hello).SerializeToString())
        message = await asyncio.wait_for(call.read(), WAIT_S)
        assert isinstance(message, pb.ControllerMessage)
        lease = message.welcome.lease
        await client.heartbeat(lease, timeout_s=WAIT_S)
        for other in (b"", lease[::-1], bytes([message.welcome.learner])):
            with pytest.raises(NotFound, match="the lease has ended; dial again"):
                await client.heartbeat(other, timeout_s=WAIT_S)
        call.cancel()
        await cluster.status_when(lambda status: not status.learners, what="it has left")
        with pytest.raises(NotFound, match="the lease has ended; dial again"):
            await client.heartbeat(lease, timeout_s=WAIT_S)
        await client.close()


async def test_a_silent_learner_is_expelled_and_dials_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def wait_for_ever(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    silent = ("controller.lost_after_s=0.5", "controller.deadline_s=0.5")
    settings = resolved(*UNCODED, "controller.heartbeat_s=0.05", *silent, "iterations=2")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        monkeypatch.setattr(ControllerClient, "heartbeat", wait_for_ever)
        learner = cluster.learner()
        await cluster.ready(1)
        await cluster.status_when(lambda status: not status.learners, what="expelled")
        monkeypatch.undo()
        await cluster.ready(1)
        assert not learner.task.done()


async def test_a_controller_that_is_cancelled_drives_its_run_no_further(tmp_path: Path) -> None:
    """Learners that dial once more while its ports close cannot complete the open round."""
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.replay()
        controller = cluster.controller()
        stalled = [await cluster.fake(Fault.STALL) for _ in range(cluster.config.learners)]
        for learner, _ in stalled:
            await asyncio.wait_for(learner.assigned.wait(), WAIT_S)
        assert _driving()
        controller.task.cancel()
        await asyncio.wait({controller.task})
        assert not _driving()


def _driving() -> list["asyncio.Task[Any]"]:
    """Tasks that drive a run."""
    return [task for task in asyncio.all_tasks() if "Driver.drive" in repr(task)]


async def test_a_clean_run_logs_neither_tracebacks_nor_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        replay, controller, learners = cluster.replay(), cluster.controller(), cluster.learners(3)
        await cluster.fake(Fault.OTHER_FINGERPRINT)
        await cluster.finished()
        for service in (controller, *learners, replay):
            await service.end()
    await eventually(lambda: all(task.done() for task in cluster.fakes), what="fakes ended")
    noisy = [
        record
        for record in caplog.records
        if record.levelname in ("ERROR", "CRITICAL") and "PollerCompletionQueue" not in record.msg
    ]  # grpc complains about the event loops of earlier tests
    assert [(record.name, record.getMessage()) for record in noisy] == []
    await eventually(lambda: len(asyncio.all_tasks()) == 1, what="nothing is left running")


async def test_a_learner_serves_while_a_controller_has_work_for_it(tmp_path: Path) -> None:
    address = free_address()
    probed = Launch(resolved=resolved(*UNCODED, f"health.address={address}"), run_dir=tmp_path)
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster, open_channel(address) as channel:
        stop = asyncio.Event()
        learner = asyncio.create_task(attach(probed, stop))
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(), wait_for_ready=True
        )
        seen = [(await asyncio.wait_for(watch.read(), WAIT_S)).status]
        cluster.replay()
        controller = cluster.controller()
        seen.append((await asyncio.wait_for(watch.read(), WAIT_S)).status)
        await controller.end()
        seen.append((await asyncio.wait_for(watch.read(), WAIT_S)).status)
        watch.cancel()
        stop.set()
        await asyncio.wait_for(learner, WAIT_S)
    assert seen == [NOT_SERVING, SERVING, NOT_SERVING]


def test_replicas_cannot_share_a_health_address(tmp_path: Path) -> None:
    settings = load(None, environ={}, overrides=["health.address=127.0.0.1:0"])
    with pytest.raises(ConfigError, match="leave it empty with --replicas"):
        main(Launch(resolved=settings, run_dir=tmp_path, replicas=2))
