"""Learners that are groups of ranks: real processes divide the units of each learner's rows."""

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest
from tests.integration.cluster import Cluster, Service, centralised, resolved
from tests.waiting import eventually

from fullrank.common.errors import ConfigError
from fullrank.config.tree import RankSettings
from fullrank.runs.record import read_records

pytestmark = pytest.mark.integration

PARTS = ("algorithm.micro_batches=2", "learners=4", "compute.device=cpu", "audit.every=0")
CODED = (*PARTS, "code.name=fractional", "code.tolerance=1")
LATE = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=0.05")


@pytest.fixture(autouse=True)
def no_rank_is_left() -> Iterator[None]:
    yield
    assert active_children() == []


def group(cluster: Cluster, *, timeout_s: float = 600.0) -> Service:
    """Start a learner of two ranks."""
    ranks = RankSettings(count=2, timeout_s=timeout_s)
    settings = replace(cluster.settings, config=replace(cluster.config, ranks=ranks))
    return cluster.attached(replace(cluster.launch, resolved=settings))


@pytest.mark.parametrize(
    "overrides",
    [
        (*CODED, *LATE),
        pytest.param((*CODED, *LATE, "collect.lag=1"), marks=pytest.mark.thorough),
        pytest.param((*PARTS, "code.name=uncoded"), marks=pytest.mark.thorough),
    ],
    ids=str,
)
async def test_groups_beside_single_learners_commit_the_bits_of_one_process(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    async with Cluster(tmp_path, resolved(*overrides)) as cluster:
        cluster.replay()
        cluster.controller()
        group(cluster)
        cluster.learners(3)
        await cluster.finished()
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize(
    ("sign", "timeout_s"),
    [
        (signal.SIGKILL, 600.0),
        pytest.param(signal.SIGSTOP, 2.0, marks=pytest.mark.thorough),
    ],
    ids=["dies", "hangs"],
)
async def test_a_group_whose_rank_dies_or_hangs_leaves_and_the_code_bears_its_loss(
    tmp_path: Path, sign: signal.Signals, timeout_s: float
) -> None:
    """It leaves within its deadline, and joins again with new ranks; no bit changes."""
    settings = resolved(*CODED, "iterations=100000")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(3)
        group(cluster, timeout_s=timeout_s)
        await cluster.status_when(
            lambda status: status.iterations_committed >= 2, what="two iterations"
        )
        await eventually(lambda: len(active_children()) == 1, what="the group has two ranks")
        (rank,) = active_children()
        assert rank.pid is not None
        os.kill(rank.pid, sign)
        await eventually(
            lambda: not rank.is_alive() and len(active_children()) == 1,
            what="the group has a new rank",
        )
        before = (await cluster.ready(4)).iterations_committed
        await cluster.status_when(
            lambda status: status.iterations_committed >= before + 2, what="the run goes on"
        )
    records = read_records(tmp_path / "metrics.jsonl")
    shorter = resolved(*CODED, f"iterations={len(records)}")
    digests, _ = centralised(shorter.config)
    assert [record.update_digest for record in records] == digests


async def test_a_learner_refuses_more_ranks_than_there_are_units(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*CODED)) as cluster:
        cluster.replay()
        cluster.controller()
        ranks = RankSettings(count=7)
        settings = replace(cluster.settings, config=replace(cluster.config, ranks=ranks))
        learner = cluster.attached(replace(cluster.launch, resolved=settings))
        with pytest.raises(ConfigError, match=r"ranks.count = 7 exceeds the 6 units") as raised:
            await asyncio.shield(learner.task)
        assert "\n" not in str(raised.value)
        cluster.services.remove(learner)
