"""Runs through the sidecar: late, damaged and lost vectors change no committed bit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.cluster import WAIT_S, Cluster, reference_digests, resolved

from fullrank.config import Resolved, load
from fullrank.errors import ServiceLost
from fullrank.rpc.addresses import resolve
from fullrank.rpc.channel import open_channel
from fullrank.rpc.launch import Launch
from fullrank.v1.straggler_pb2_grpc import StragglerServiceStub
from fullrank_learner.server import attach
from fullrank_straggler.server import serve

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")
"""Every row is needed: no round is committed around a straggler."""


class Lab:
    """A cluster whose learners dial a sidecar."""

    def __init__(self, cluster: Cluster, *overrides: str) -> None:
        self._cluster = cluster
        self._settings = load(None, environ={}, overrides=overrides)

    async def start(self) -> None:
        """Start replay, controller and sidecar."""
        self._cluster.replay()
        self._cluster.controller()
        await self._cluster.address()
        stop = asyncio.Event()
        launch = Launch(resolved=self._settings, run_dir=self._cluster.run_dir)
        self._cluster.start(stop, serve(launch, stop))
        self.address = await self._announced("straggler")
        self.control = StragglerServiceStub(
            open_channel(await self._announced("straggler-control"))
        )

    async def _announced(self, name: str) -> str:
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    return resolve("127.0.0.1:0", self._cluster.run_dir, name)
                except ServiceLost:
                    await asyncio.sleep(0.005)

    def learners(self, count: int) -> None:
        """Start real learners that dial the sidecar."""
        for _ in range(count):
            stop = asyncio.Event()
            behind = load(None, environ={}, overrides=[f"controller.address={self.address}"])
            self._cluster.start(stop, attach(Launch(resolved=behind), stop))


@asynccontextmanager
async def lab(
    tmp_path: Path, settings: Resolved, *overrides: str
) -> AsyncIterator[tuple[Cluster, Lab]]:
    """A cluster and its sidecar, which has settings of its own."""
    async with Cluster(tmp_path, settings) as cluster:
        straggler = Lab(cluster, *overrides)
        await straggler.start()
        yield cluster, straggler


EXPONENTIAL = ("stragglers.name=exponential", "stragglers.mean_s=0.02")


@pytest.mark.parametrize("model", [(), EXPONENTIAL], ids=["off", "exponential"])
async def test_a_run_through_the_sidecar_commits_the_same_bits(
    tmp_path: Path, model: tuple[str, ...]
) -> None:
    async with lab(tmp_path, resolved("code.name=cyclic", "learners=4"), *model) as (
        cluster,
        straggler,
    ):
        straggler.learners(4)
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)
