"""Learners that make their own samples: services commit what one process commits."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.cluster import Cluster, reference_digests, resolved

from fullrank.local import LocalRun

pytestmark = pytest.mark.integration

ISING = ("algorithm.name=darl1n", "algorithm.evaluate_every=3", "environment.name=ising")
FOOD = ("algorithm.name=darl1n", "environment.name=food_collection", "environment.agents=3")
LATE = ("stragglers.name=fixed_k", "stragglers.k=1", "stragglers.delay_s=0.1")


@pytest.mark.parametrize(
    "settings",
    [
        (*ISING, "code.name=ldgm", "learners=12", "audit.every=2"),
        (*FOOD, "code.name=cyclic", "learners=5", *LATE),
    ],
    ids=["ising ldgm audited", "food_collection cyclic late"],
)
async def test_samples_made_by_learners_leave_no_doubt_about_the_bits(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    async with Cluster(tmp_path, resolved(*settings)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(cluster.config.learners)
        await cluster.finished()
    config = cluster.config
    centralised = [each.update_digest for each in LocalRun(config, coded=False)]
    assert cluster.digests() == reference_digests(config) == centralised
    assert all(record.exact for record in cluster.records())


async def test_a_resumed_run_goes_on_with_the_same_samples_and_evaluations(tmp_path: Path) -> None:
    whole = resolved(*ISING, "code.name=ldgm", "learners=9", "checkpoint.every=2")
    config = whole.config
    half = replace(whole, config=replace(config, iterations=3))
    for part in (half, whole):
        async with Cluster(tmp_path, part) as cluster:
            cluster.replay()
            cluster.controller()
            cluster.learners(9)
            await cluster.finished()
    assert cluster.digests() == reference_digests(config)
    evaluated = [record.return_mean is not None for record in cluster.records()]
    assert evaluated == [True, False, False, True]
