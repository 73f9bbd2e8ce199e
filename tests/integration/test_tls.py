"""Runs under mutual TLS: the same bits, and calls from certified peers only."""

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from tests.addresses import free_port
from tests.certificates import RUN, certify, security
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import AccessDenied, ConfigError, ServiceLost, Unauthenticated
from fullrank.config import PluginSettings, load
from fullrank.host.certificates import Role, initialise, today
from fullrank.host.probe import probe
from fullrank.host.process import Launch
from fullrank.host.run_directory import resolve
from fullrank.net.channel import open_channel
from fullrank.net.controller_client import ControllerClient
from fullrank.net.straggler import get_injection, set_injection
from fullrank.v1.replay_pb2 import OpenTableRequest
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub
from fullrank_learner.server import attach
from fullrank_straggler.server import serve

pytestmark = pytest.mark.integration


def secured(tmp_path: Path, *overrides: str) -> Cluster:
    """A run whose services hold certificates."""
    certificates = certify(tmp_path / "certificates")
    settings = resolved(*overrides, f"tls.certificates={certificates}")
    return Cluster(tmp_path / "run", settings)


async def test_a_sidecar_speaks_for_learners_and_obeys_an_administrator_alone(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path) as cluster:
        cluster.serve()
        await cluster.address()
        folder = cluster.config.tls.certificates
        stop = asyncio.Event()
        cluster.start(stop, serve(cluster.launch, stop))
        run_dir = cluster.run_dir
        await eventually(lambda: _announced(run_dir, "straggler-control") != "", what="it listens")
        address = _announced(run_dir, "straggler")
        behind = [f"controller.address={address}", f"tls.certificates={folder}", "tls.sidecar=true"]
        for _ in range(4):
            stop = asyncio.Event()
            launch = Launch(resolved=load(None, environ={}, overrides=behind))
            cluster.start(stop, attach(launch, stop))
        await cluster.finished()
        control = _announced(run_dir, "straggler-control")
        model = PluginSettings(name="fixed_k", params={"k": 1, "delay_s": 0.5})
        monitor, admin, learner = (
            security(Path(folder), role) for role in (Role.MONITOR, Role.ADMIN, Role.LEARNER)
        )
        await asyncio.to_thread(set_injection, control, model=model, security=admin)
        for caller in (monitor, learner):
            with pytest.raises(AccessDenied, match=r"may not call .*SetInjection; admin may"):
                await asyncio.to_thread(set_injection, control, model=model, security=caller)
        shown = await asyncio.to_thread(get_injection, control, security=monitor)
        assert shown.model.name == "fixed_k"
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_learner_does_not_take_a_sidecar_for_its_controller_unless_told(
    tmp_path: Path,
) -> None:
    async with secured(tmp_path) as cluster:
        stop = asyncio.Event()
        cluster.start(stop, serve(cluster.launch, stop))
        await eventually(lambda: _announced(cluster.run_dir, "straggler") != "", what="it listens")
        address = _announced(cluster.run_dir, "straggler")
        learner = ControllerClient(address, security=cluster.security(Role.LEARNER))
        with pytest.raises(Unauthenticated, match="not of the role and run that are expected"):
            await learner.status()
        await learner.close()


def _announced(run_dir: Path, name: str) -> str:
    try:
        return resolve("127.0.0.1:0", run_dir, name)
    except ServiceLost:
        return ""


@pytest.mark.parametrize("service", ["controller", "replay", "straggler"])
async def test_no_service_starts_in_plain_text_beyond_loopback(
    tmp_path: Path, service: str
) -> None:
    key = "sidecar.address" if service == "straggler" else f"{service}.listen"
    async with Cluster(tmp_path, resolved(f"{key}=0.0.0.0:0")) as cluster:
        if service == "controller":
            cluster.replay()
            task = cluster.controller().task
        elif service == "replay":
            task = cluster.replay().task
        else:
            stop = asyncio.Event()
            task = cluster.start(stop, serve(cluster.launch, stop)).task
        with pytest.raises(ConfigError, match=r"refusing to listen on 0\.0\.0\.0:0 in plain text"):
            await asyncio.wait_for(task, WAIT_S)


async def test_the_plaintext_port_serves_health_and_nothing_else(tmp_path: Path) -> None:
    address = f"0.0.0.0:{free_port()}"
    async with secured(tmp_path, f"health.address={address}") as cluster:
        cluster.replay()
        await eventually(lambda: _announced(cluster.run_dir, "replay") != "", what="it listens")
        async with open_channel(address) as channel:
            call = ReplayServiceStub(channel).OpenTable(OpenTableRequest(), timeout=WAIT_S)
            assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        assert await asyncio.to_thread(probe, address, "", WAIT_S) == "SERVING"
        secure = _announced(cluster.run_dir, "replay")
        with pytest.raises(OSError, match=r"closed|ended|reset"):
            await asyncio.to_thread(probe, secure, "", WAIT_S)


async def test_a_learner_s_own_certificate_admits_it_alone(tmp_path: Path) -> None:
    folder = certify(tmp_path / "certificates")
    initialise(folder, run=RUN, days=1, now=today(), learners=4)
    settings = resolved(f"tls.certificates={folder}")
    async with Cluster(tmp_path / "run", settings) as cluster:
        cluster.serve()
        for number in (0, 1, 2, 3, 0):  # the last one shows a certificate that is in use
            own = replace(cluster.config.tls, learner=number)
            launch = replace(settings, config=replace(cluster.config, tls=own))
            cluster.attached(replace(cluster.launch, resolved=launch))
        status = await cluster.finished()
    assert len(status.learners) == 4
    assert cluster.digests() == reference_digests(cluster.config)
