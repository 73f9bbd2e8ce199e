"""Health tells probes if a service is at work; a bind address may differ from the dialled one."""

import asyncio
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.addresses import free_address
from tests.integration.cluster import Cluster, resolved
from tests.waiting import WAIT_S

from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.host.process import Launch
from fullrank.net.channel import open_channel
from fullrank_learner.server import attach, main

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


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
