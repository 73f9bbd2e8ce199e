"""Containers that learn as services: heads, hand-over, and the coded run that stays itself."""

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from threading import Semaphore
from typing import Any

import numpy as np
import pytest
from tests.integration.cluster import Cluster, Service
from tests.integration.collecting import VALUES, settings
from tests.integration.test_free import FREE, verified
from tests.waiting import eventually

from fullrank.algorithms.container_learner import ContainerLearner
from fullrank.cli.status_view import containers
from fullrank.net.monitor_messages import decode_status
from fullrank.training.container import Container
from fullrank.training.heads import Heads
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring.containers import container_of
from fullrank_collector import run_context

pytestmark = pytest.mark.integration

CONTAINERS = (
    *VALUES,
    *FREE,
    "iterations=100000",
    "checkpoint.every=20",
    "checkpoint.keep=1000000",  # journal and table reach back to the beginning, however late a
    "replay.capacity=100000",  # test ends its run
    "collect.max_lag=1000000",
    "collectors.containers=true",
    "containers.low=-1.0",
    "containers.high=1.0",
    "containers.batch_size=4",
    "containers.every_s=0.05",
)


SHOWN = ["played", "handed over", "updates", "published", "divergence"]


def services(cluster: Cluster) -> tuple[Service, list[Service]]:
    """Start all; returns the controller and the containers."""
    cluster.replay()
    controller = cluster.controller()
    cluster.learners(cluster.config.learners)
    return controller, [cluster.collector() for _ in range(2)]


def have_met(status: pb.GetStatusResponse) -> bool:
    """True once both containers have learned with the head of the other."""
    return len(status.collectors) == 2 and all(
        each.container.published and each.container.divergence for each in status.collectors
    )


async def end(cluster: Cluster, *services: Service) -> None:
    for service in services:
        await service.end()
        cluster.services.remove(service)


def updates_on_disk(run_dir: Path) -> dict[int, int]:
    heads = (run_dir / "heads").glob("[0-9]*.npz")
    return {int(path.stem): int(np.load(path)["updates"]) for path in heads}


async def test_containers_exchange_heads_hand_over_their_share_and_the_run_is_recomputed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path, settings(*CONTAINERS)) as cluster:
        services(cluster)
        status = await cluster.status_when(
            lambda status: have_met(status) and status.iterations_committed >= 4,
            what="heads of both, and four iterations",
        )
        for each in status.collectors:
            facts = each.container
            assert abs(facts.handed_over - 0.6 * facts.played) <= 0.5
            assert facts.updates >= facts.published > 0
            assert not each.stale
        shown = containers(decode_status(status))
        assert [column.header for column in shown.columns][1:] == SHOWN
        await end(cluster, *cluster.services)
    assert "committed iterations recomputed, 0 to" in verified(tmp_path, capsys)


class Begun:
    """Notes the number of each container that begins anew."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers = list[int]()
        monkeypatch.setattr(run_context, "container_of", self._container_of)

    def _container_of(self, *words: Any, number: int, heads: Heads) -> Container:
        self.numbers.append(number)
        return container_of(*words, number=number, heads=heads)


def are_newer(before: Mapping[int, int], status: pb.GetStatusResponse) -> bool:
    """True once all containers have played, and published newer heads than before."""
    found = {each.collector: each.container for each in status.collectors if each.blocks}
    return all(each in found and found[each].published > before[each] for each in before)


async def test_a_controller_that_dies_finds_the_heads_and_containers_go_on_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Begun(monkeypatch)
    async with Cluster(tmp_path, settings(*CONTAINERS)) as cluster:
        controller, _ = services(cluster)
        await cluster.status_when(have_met, what="heads of both")
        await eventually(lambda: len(updates_on_disk(tmp_path)) == 2, what="both on disk")
        controller.task.cancel()
        await asyncio.wait({controller.task})
        cluster.services.remove(controller)
        before, done = updates_on_disk(tmp_path), len(cluster.records())
        cluster.controller()
        await cluster.status_when(
            lambda status: are_newer(before, status) and status.iterations_committed > done,
            what="newer heads of both, and iterations",
        )
        await end(cluster, *cluster.services)
    assert sorted(begun.numbers) == [0, 1]  # with buffer and mixer
    assert "committed iterations recomputed, 0 to" in verified(tmp_path, capsys)


async def test_a_container_whose_update_raises_goes_on_with_its_published_head_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, faults, update = Begun(monkeypatch), Semaphore(0), ContainerLearner.update

    def faulty(learner: ContainerLearner, *minibatch: Any) -> Mapping[str, float]:
        if faults.acquire(blocking=False):
            raise MemoryError("planted")
        return update(learner, *minibatch)

    monkeypatch.setattr(ContainerLearner, "update", faulty)
    async with Cluster(tmp_path, settings(*CONTAINERS)) as cluster:
        services(cluster)
        await cluster.status_when(have_met, what="heads of both")
        await eventually(lambda: len(updates_on_disk(tmp_path)) == 2, what="both on disk")
        before = updates_on_disk(tmp_path)
        faults.release()
        status = await cluster.status_when(
            lambda status: len(begun.numbers) > 2 and are_newer(before, status),
            what="a container that begins anew, and newer heads of both",
        )
        await end(cluster, *cluster.services)
    assert sorted(set(begun.numbers)) == [0, 1]
    number = begun.numbers[2]
    [caveat] = status.caveats
    [failed] = [each.failed for each in status.collectors if each.failed]
    assert caveat == f"collector {number} on {socket.gethostname()}: {failed}"
    assert f"head of container {number} was lost in an update, MemoryError('planted')," in failed
