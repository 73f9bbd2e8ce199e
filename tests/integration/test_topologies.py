"""``--topology``: every system of [CMARL] trains as services, and its run is recomputed."""

from pathlib import Path

import pytest
from tests.integration.cluster import Cluster
from tests.integration.test_free import verified
from tests.waiting import WAIT_S

from fullrank.config import Resolved, load
from fullrank.config.topologies import TOPOLOGIES
from fullrank.v1 import controller_pb2 as pb

pytestmark = pytest.mark.integration

SMALL = (
    "iterations=1000000",
    "environment.name=two_step_game",
    "algorithm.name=qmix",
    "algorithm.batch_size=8",
    "algorithm.hidden=8",
    "algorithm.mixing=4",
    "algorithm.hypernet=4",
    "code.name=uncoded",
    "learners=1",
    "collect.warmup=40",
    "collect.warmup_copies=4",
    "collect.warmup_episodes=40",
    "containers.batch_size=4",
    "containers.every_s=0.05",
    "checkpoint.keep=1000000",  # the journal reaches back to the beginning, however long a run is
    "metrics.sinks=[]",
    f"controller.deadline_s={WAIT_S}",
    f"controller.lost_after_s={2 * WAIT_S}",
)
SYSTEMS = [name for name in TOPOLOGIES if name.startswith(("cmarl-", "apex", "parallel"))]
"""The paper's systems besides ``cmarl``, which ``tests/e2e`` trains as it is deployed."""
OFTEN = ("apex", "cmarl-no-diversity")


def config_of(name: str) -> Resolved:
    return load(environ={}, overrides=SMALL, topology=name).check()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=() if each in OFTEN else (pytest.mark.thorough,))
        for each in SYSTEMS
    ],
)
async def test_a_topology_trains_as_services_and_its_run_is_recomputed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Cluster(tmp_path, config_of(name)) as cluster:
        config = cluster.config

        def is_at_work(status: pb.GetStatusResponse) -> bool:
            """Iterations are committed, all collectors play, and heads are exchanged."""
            playing = [each for each in status.collectors if each.blocks]
            if config.collectors.containers and config.containers.learn:
                playing = [each for each in playing if each.container.published]
            return len(playing) == config.collectors.count and status.iterations_committed >= 3

        cluster.serve(1)
        for _ in range(config.collectors.count):
            cluster.collector()
        status = await cluster.status_when(is_at_work, what="three iterations, and all play")
        for each in status.collectors:
            assert each.HasField("container") == config.collectors.containers
            assert config.containers.learn or not each.container.updates
        for service in cluster.services:
            await service.end()
    assert all(record.exact for record in cluster.records())
    assert "committed iterations recomputed, 0 to" in verified(tmp_path, capsys)
