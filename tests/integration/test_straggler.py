"""Runs through the sidecar: late, damaged and lost vectors change no committed bit."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import ConfigError, ServiceLost
from fullrank.config import PluginSettings, load
from fullrank.config.faults import CorruptFault, DropFault, Fault
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank.net.channel import open_channel
from fullrank.net.straggler import Injected, set_injection
from fullrank.stragglers import FixedK
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.straggler_pb2 import GetInjectionRequest, SetInjectionRequest
from fullrank.v1.straggler_pb2_grpc import StragglerServiceStub
from fullrank_learner.server import attach
from fullrank_straggler.server import serve

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3", "controller.undecodable=wait")
"""Every row is needed, from its own learner: no round is committed around a straggler."""
CYCLIC = ("code.name=cyclic", "learners=4")
"""Any three of four rows decode."""
CONTROLLER = 1
"""Index of the controller among the services of a lab."""
EXPONENTIAL = ("stragglers.name=exponential", "stragglers.mean_s=0.02")
FOR_EVER_S = 1000.0


class Lab:
    """A cluster whose learners dial a sidecar.

    Args:
        cluster: The run.
        folder: Folder in which the sidecar announces itself and finds the controller.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.address = self.control = ""

    async def start(self, *overrides: str) -> None:
        """Start a sidecar with settings of its own."""
        settings = load(None, environ={}, overrides=overrides)
        stop = asyncio.Event()
        self._cluster.start(stop, serve(Launch(resolved=settings, run_dir=self._folder), stop))
        await eventually(lambda: self._announced("straggler-control") != "", what="it listens")
        self.address = self._announced("straggler")
        self.control = self._announced("straggler-control")

    def _announced(self, name: str) -> str:
        try:
            return resolve("127.0.0.1:0", self._folder, name)
        except ServiceLost:
            return ""

    def learners(self, count: int) -> None:
        """Start real learners that dial the sidecar."""
        for _ in range(count):
            stop = asyncio.Event()
            behind = load(None, environ={}, overrides=[f"controller.address={self.address}"])
            self._cluster.start(stop, attach(Launch(resolved=behind), stop))

    async def inject(self, *faults: Fault, model: PluginSettings | None = None) -> Injected:
        """Change the injection."""
        return await asyncio.to_thread(set_injection, self.control, model=model, faults=faults)


@asynccontextmanager
async def lab(
    run_dir: Path, *settings: str, injected: tuple[str, ...] = ()
) -> AsyncIterator[tuple[Cluster, Lab]]:
    """A run with ``settings``, and a sidecar with those in ``injected``."""
    async with Cluster(run_dir, resolved(*settings)) as cluster:
        cluster.serve()
        await cluster.address()
        straggler = Lab(cluster, run_dir)
        await straggler.start(*injected)
        yield cluster, straggler


FIXED = ("stragglers.name=fixed_k", f"stragglers.delay_s={FOR_EVER_S}")


def named(seed: int) -> list[tuple[int, ...]]:
    """Learner that FIXED delays in each iteration."""
    model = FixedK(k=1, delay_s=FOR_EVER_S)
    return [(int(model.delays(seed=seed, iteration=t, learners=4).argmax()),) for t in range(4)]


@pytest.mark.smoke
async def test_the_sidecar_delays_whom_the_keyed_model_names_and_no_one_else(
    tmp_path: Path,
) -> None:
    async with lab(tmp_path, *CYCLIC, "seed=3", injected=FIXED) as (cluster, straggler):
        straggler.learners(4)
        await cluster.finished()
    assert [record.late for record in cluster.records()] == named(seed=3)
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_learner_that_is_away_is_not_awaited_and_keeps_its_place(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("iteration,learner,away\n0,1,1\n")
    trace = ("stragglers.name=trace", f"stragglers.path={tmp_path / 'trace.csv'}")
    async with Cluster(tmp_path / "run", resolved(*CYCLIC, *trace)) as cluster:
        status = await cluster.train()
        assert len(status.learners) == cluster.config.learners
    assert [record.late for record in cluster.records()] == [(1,)] * 4
    assert {record.epoch for record in cluster.records()} == {0}
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_vector_held_for_ever_comes_when_the_fault_is_taken_back(tmp_path: Path) -> None:
    settings = (*UNCODED, "controller.deadline_s=4.0")
    hold = 'sidecar.faults=[{kind="hold", learners=[1], iterations=[2]}]'
    async with lab(tmp_path, *settings, injected=(hold,)) as (cluster, straggler):
        straggler.learners(3)
        awaited = "learners [1] have not answered"
        status = await cluster.status_when(
            lambda status: awaited in status.message and "iteration 2: " in status.message,
            what="learner 1 alone is awaited",
        )
        assert status.state == pb.RUN_STATE_STALLED
        assert "rows of rank 2 do not determine each of 3 units" in status.message
        await straggler.inject()
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_dropped_learner_dials_again_until_the_fault_is_taken_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fullrank_learner")
    async with lab(tmp_path, *UNCODED) as (cluster, straggler):
        await straggler.inject(DropFault(iterations=(1,)))
        straggler.learners(3)
        dropped = "UNAVAILABLE: the connection is dropped by a fault, iteration 1"
        await eventually(lambda: caplog.text.count(dropped) >= 6, what="each dropped twice")
        assert len(cluster.records()) <= 1
        await straggler.inject()
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_byte_corrupted_on_the_way_fails_its_checksum(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fullrank_learner")
    async with lab(tmp_path, *UNCODED) as (cluster, straggler):
        await straggler.inject(CorruptFault(learners=(2,), iterations=(1,), byte=1001))
        straggler.learners(3)
        refused = "chunk.crc32c does not match the data"
        await eventually(lambda: refused in caplog.text, what="refused")
        await straggler.inject()
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": {"name": "exponentail"}}, "model.name: unknown delay model 'exponentail'"),
    (
        {"model": {"name": "exponential", "params": {"mean_s": "long"}}},
        "model.params: stragglers.mean_s = 'long' in the request: must be a valid number",
    ),
    ({"model": {"name": "fixed_k", "params": {"k": 5}}}, "model.params: fixed_k: k = 5"),
    ({"faults": {"faults": [{"hold": {}}, {}]}}, "faults.1.kind: "),
    (
        {"faults": {"faults": [{"throttle": {"bytes_per_s": -2.0}}]}},
        "faults.0.throttle.bytes_per_s: must be greater than 0",
    ),
]


async def test_a_bad_change_is_refused_with_its_field_and_changes_nothing(tmp_path: Path) -> None:
    good = {"model": {"name": "none"}, "faults": {"faults": [{"hold": {}}]}}
    async with lab(tmp_path, *CYCLIC, injected=EXPONENTIAL) as (cluster, straggler):
        straggler.learners(1)
        await cluster.ready(1)
        async with open_channel(straggler.control) as channel:
            stub = StragglerServiceStub(channel)
            before = await stub.GetInjection(GetInjectionRequest())
            for bad, said in BAD:
                with pytest.raises(grpc.RpcError) as error:
                    await stub.SetInjection(ParseDict(good | bad, SetInjectionRequest()))
                assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert (error.value.details() or "").startswith(said)
                assert await stub.GetInjection(GetInjectionRequest()) == before


async def test_a_model_that_cannot_be_for_the_run_ends_its_learners_with_one_line(
    tmp_path: Path,
) -> None:
    too_many = ("stragglers.name=fixed_k", "stragglers.k=5")
    async with lab(tmp_path, *CYCLIC, injected=too_many) as (_, straggler):
        launch = Launch(resolved=load(overrides=[f"controller.address={straggler.address}"]))
        with pytest.raises(ConfigError, match="fixed_k: k = 5 stragglers need at least 5 learners"):
            await asyncio.wait_for(attach(launch, asyncio.Event()), WAIT_S)


async def test_a_controller_that_comes_back_elsewhere_is_found_again(tmp_path: Path) -> None:
    async with lab(tmp_path, *UNCODED, "iterations=30") as (cluster, straggler):
        straggler.learners(3)
        await eventually(lambda: len(cluster.records()) >= 3, what="three iterations")
        await cluster.services[CONTROLLER].end()
        cluster.controller()
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)
