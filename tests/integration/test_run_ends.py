"""The end of a run on the wire: learners, collectors, replay and monitors hear of it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cluster import Cluster, Service, reference_digests, resolved
from tests.integration.collecting import ACTORS, settings
from tests.waiting import WAIT_S

from fullrank.client import AsyncMonitor, RunState
from fullrank.common.errors import EnvironmentFailed, ServiceLost
from fullrank.config.elsewhere import from_elsewhere
from fullrank.config.toml import settings_digest, to_toml
from fullrank.run.orders import Settle
from fullrank.runs.ending import failed, read_ending, write_ending
from fullrank_collector.server import attach as attach_collector
from fullrank_controller.driver import Driver
from fullrank_controller.epilogue import Epilogue
from fullrank_controller.server import serve as serve_controller
from fullrank_learner.server import attach
from fullrank_replay.server import serve as serve_replay

pytestmark = pytest.mark.integration

TELLING = ("controller.heartbeat_s=0.1", "controller.lost_after_s=5.0")


async def ended(*services: Service) -> None:
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*(service.task for service in services))


async def test_a_finished_run_ends_replay_and_collectors_too(tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings(*ACTORS, *TELLING)) as cluster:
        launch, stop = replace(cluster.launch, until_finished=True), asyncio.Event()
        await ended(
            cluster.start(stop, serve_replay(launch, stop)),
            *(cluster.start(stop, attach(launch, stop)) for _ in range(2)),
            *(cluster.start(stop, attach_collector(launch, stop)) for _ in range(2)),
            cluster.start(stop, serve_controller(launch, tmp_path, stop)),
        )
    ending = read_ending(tmp_path)
    assert ending is not None
    assert (ending.state, ending.committed) == ("finished", 4)


async def test_a_service_that_serves_until_the_end_fails_when_it_is_told_to_stop_before(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, resolved()) as cluster:
        launch, stop = replace(cluster.launch, until_finished=True), asyncio.Event()
        services = [
            cluster.start(stop, serve_replay(launch, stop)),
            cluster.start(stop, serve_controller(launch, tmp_path, stop)),
            cluster.start(stop, attach(launch, stop)),
        ]
        await cluster.ready(1)
        stop.set()
        for service in services:
            with pytest.raises(ServiceLost, match="told to stop before the run has ended"):
                await service.end()


async def test_monitors_learn_why_a_run_has_failed_and_still_see_its_iterations(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path, resolved()) as cluster:
        await cluster.train()
        await cluster.finished()
        config = cluster.config
    ending = failed(EnvironmentFailed("it raised"), committed=4, settings="")
    async with Epilogue(ending, config, tmp_path):
        address = json.loads((tmp_path / "services" / "monitor.json").read_text())["address"]
        async with AsyncMonitor(address) as monitor:
            status = await monitor.status()
            assert (status.state, status.message) == (RunState.FAILED, "it raised")
            assert (status.exit_code, status.committed, status.iterations) == (3, 4, 4)
            assert [record.iteration async for record in monitor.watch()] == [0, 1, 2, 3]
            assert (await monitor.setup()).config == from_elsewhere(to_toml(config)).config
            assert (await monitor.policies()).iteration == 3
    assert not list((tmp_path / "services").glob("monitor.json"))


async def test_learners_hear_of_a_failure_from_a_controller_that_serves_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = Driver._settle

    async def fail_at_two(driver: Driver, order: Settle) -> None:
        if order.iteration == 2:
            raise EnvironmentFailed("it raised")
        await settle(driver, order)

    monkeypatch.setattr(Driver, "_settle", fail_at_two)
    async with Cluster(tmp_path, resolved(*TELLING)) as cluster:
        cluster.replay()
        launch, stop = replace(cluster.launch, until_finished=True), asyncio.Event()
        learners = [cluster.start(stop, attach(launch, stop)) for _ in range(4)]
        lasting = replace(cluster.launch, stop_with_stdin=False)
        controller = cluster.start(stop, serve_controller(lasting, tmp_path, stop))
        for service in (*learners, controller):
            with pytest.raises(EnvironmentFailed, match="it raised"):
                await asyncio.wait_for(service.task, WAIT_S)
    ending = read_ending(tmp_path)
    assert ending is not None
    assert (ending.state, ending.exit_code, ending.committed) == ("failed", 3, 2)


async def test_a_run_that_has_failed_is_not_begun_again_before_its_settings_change(
    tmp_path: Path,
) -> None:
    config = resolved(*TELLING)
    async with Cluster(tmp_path, config) as cluster:
        launch = replace(cluster.launch, until_finished=True)
        error, digest = EnvironmentFailed("it raised"), settings_digest(launch.config)
        write_ending(tmp_path, failed(error, committed=0, settings=digest))
        replay = cluster.replay()
        await asyncio.wait_for(serve_controller(launch, tmp_path, asyncio.Event()), WAIT_S)
        assert read_ending(tmp_path) is not None
        changed = resolved(*TELLING, "iterations=3")
        cluster.settings = changed
        launch = replace(cluster.launch, until_finished=True)
        stop = asyncio.Event()
        controller = cluster.start(stop, serve_controller(launch, tmp_path, stop))
        learners = [cluster.start(stop, attach(launch, stop)) for _ in range(4)]
        await ended(controller, *learners)
        await replay.end()
    assert cluster.digests() == reference_digests(changed.config)


async def test_a_resumed_run_does_not_wait_for_learners_that_it_can_do_without(
    tmp_path: Path,
) -> None:
    """It would wait for them as long as a test may take."""
    async with Cluster(tmp_path, resolved("code.name=cyclic", "iterations=30")) as cluster:
        cluster.replay()
        controller = cluster.controller()
        learners = cluster.learners(4)
        await cluster.status_when(lambda status: status.iterations_committed >= 2, what="begun")
        await controller.end()
        for gone in learners[:2]:
            await gone.end()
        cluster.controller()
        await cluster.finished()
        assert cluster.digests() == reference_digests(cluster.config)
