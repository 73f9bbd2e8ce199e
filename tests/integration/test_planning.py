"""With ``code.name = "auto"`` the code changes between iterations, and the bits do not."""

from pathlib import Path

import pytest
from tests.integration.cluster import Cluster, reference_digests, resolved

pytestmark = pytest.mark.integration

LATE = (
    "code.name=auto",
    "learners=6",
    "iterations=24",
    "stragglers.name=fixed_k",
    "stragglers.k=3",
    "stragglers.delay_s=0.4",
    "compute.emulate_unit_s=0.02",
)


async def test_a_run_that_plans_raises_the_tolerance_and_keeps_its_bits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="fullrank_controller")
    async with Cluster(tmp_path, resolved(*LATE)) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(6)
        await cluster.finished()
    records = cluster.records()
    assert records[0].tolerance == 1
    assert max(record.tolerance for record in records) > 1
    assert records[-1].epoch >= 1
    assert cluster.digests() == reference_digests(cluster.config)
    explained = [entry.getMessage() for entry in caplog.records if "plan " in entry.getMessage()]
    assert any("instead of cyclic,tolerance=1" in each for each in explained)


async def test_a_run_that_waits_for_every_learner_gains_nothing_by_tolerance(
    tmp_path: Path,
) -> None:
    own = ("algorithm.name=darl1n", "algorithm.data=independent", "algorithm.max_variance=0.0")
    settings = (*LATE, "stragglers.delay_s=0.2", "environment.name=food_collection", *own)
    async with Cluster(tmp_path, resolved(*settings, "environment.agents=3")) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(6)
        await cluster.finished()
    assert {record.tolerance for record in cluster.records()} == {1}


async def test_arrivals_and_rows_are_recorded(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved("code.name=cyclic", "learners=4")) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(4)
        await cluster.finished()
    for record in cluster.records():
        assert set(record.arrival_s) == set(record.received)
        assert sorted(record.rows.values()) == [0, 1, 2, 3]
        assert record.rows.keys() == {*record.received, *record.late}
        assert max(record.arrival_s.values()) <= record.round_s
        assert all(record.arrival_s[each] >= record.compute_s[each] for each in record.received)
        assert (record.code_rows, record.tolerance) == (4, 1)
