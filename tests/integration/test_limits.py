"""Clients that exceed a limit are refused, and others are not affected."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from grpc import StatusCode
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S

from fullrank.common.errors import ServiceLost
from fullrank.net import limits
from fullrank.net.controller_client import ControllerClient

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")


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
