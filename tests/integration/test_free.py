"""Free collection: collectors write to replay, and what is committed is a function of the table."""

import asyncio
from pathlib import Path

import pytest
from tests.integration.cluster import Cluster, Service
from tests.integration.test_collectors import ACTORS, VALUES, settings

from fullrank_collector.server import attach as attach_collector

pytestmark = pytest.mark.integration

FREE = (
    "collect.mode=free",
    "collect.warmup_episodes=12",
    "collect.window=10",
    "collect.max_lag=3",
    "iterations=8",
)
TEAMS = {"qmix": (*VALUES, *FREE), "maddpg": (*ACTORS, *FREE)}


def collector(cluster: Cluster) -> Service:
    stop = asyncio.Event()
    return cluster.start(stop, attach_collector(cluster.launch, stop))


@pytest.mark.parametrize("team", TEAMS)
async def test_a_free_run_is_trained(team: str, tmp_path: Path) -> None:
    async with Cluster(tmp_path, settings(*TEAMS[team])) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(cluster.config.learners)
        for _ in range(2):
            collector(cluster)
        status = await cluster.finished()
        for record in cluster.records():
            print(record.return_mean, record.statistics)
        print(status)
