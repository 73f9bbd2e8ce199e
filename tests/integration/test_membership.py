"""Learners join and leave and controllers restart: the run continues with the same bits."""

import asyncio
from pathlib import Path

import pytest
from tests.fakes import Fault
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S

from fullrank.v1 import controller_pb2 as pb

pytestmark = pytest.mark.integration

CYCLIC = ("code.name=cyclic", "learners=4")
UNCODED = ("code.name=uncoded", "learners=3")


async def test_a_leave_is_borne_and_a_newcomer_takes_the_vacant_row(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*CYCLIC)) as cluster:
        cluster.serve()
        _, ending = await cluster.fake(Fault.DIE_MID_STREAM)
        slow, _ = await cluster.fake(Fault.STALL)  # keeps the first round open
        cluster.learners(2)
        await asyncio.wait_for(ending, WAIT_S)
        cluster.learner()
        await cluster.status_when(
            lambda status: (
                sum(bool(each.fingerprint) and each.host != "fake" for each in status.learners) == 3
            ),
            what="the newcomer is ready",
        )
        slow.release.set()
        status = await cluster.finished()
    records = cluster.records()
    assert [record.epoch for record in records] == [0, 0, 0, 0]
    assert [len(record.rows) for record in records] == [4, 4, 4, 4]
    assert len(records[0].received) == 3
    assert sorted(list(learner.rows) for learner in status.learners) == [[0], [1], [2], [3]]
    assert cluster.digests() == reference_digests(cluster.config)


@pytest.mark.smoke
async def test_a_spare_takes_over_the_row_of_a_learner_that_dies(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved("code.name=uncoded", "learners=4")) as cluster:
        cluster.serve()
        _, ending = await cluster.fake(Fault.DIE_MID_STREAM)
        cluster.learners(3)
        await asyncio.wait_for(ending, WAIT_S)
        await cluster.finished()
    first, *_ = cluster.records()
    assert (first.epoch, first.attempt) == (0, 1)
    assert cluster.digests() == reference_digests(cluster.config)


async def test_those_who_are_left_compute_what_left_with_others_in_the_same_iteration(
    tmp_path: Path,
) -> None:
    settings = resolved("code.name=cyclic", "code.tolerance=1", "learners=6")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        endings = [(await cluster.fake(Fault.DIE_MID_STREAM, at=1))[1] for _ in range(2)]
        cluster.learners(4)  # the fakes hold rows 0 and 1, which alone have unit 0
        for ending in endings:
            await asyncio.wait_for(ending, WAIT_S)
        status = await cluster.finished()
    records = cluster.records()
    assert [record.epoch for record in records] == [0, 0, 1, 1]
    assert [record.attempt for record in records] == [0, 1, 0, 0]
    assert [record.code_rows for record in records] == [6, 6, 4, 4]
    assert status.term == 1
    assert cluster.digests() == reference_digests(cluster.config)


@pytest.mark.smoke
async def test_one_of_two_learners_for_three_units_may_die(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved("code.name=cyclic", "learners=2")) as cluster:
        cluster.serve()
        _, ending = await cluster.fake(Fault.DIE_MID_STREAM, at=1)
        cluster.learner()
        await asyncio.wait_for(ending, WAIT_S)
        status = await cluster.finished()
    records = cluster.records()
    assert [record.tolerance for record in records] == [1, 1, 1, 1]
    assert {record.attempt for record in records} == {0}, "nothing had to be computed again"
    assert [len(learner.rows) for learner in status.learners] == [3]
    assert cluster.digests() == reference_digests(cluster.config)


@pytest.mark.smoke
async def test_a_restarted_controller_finds_its_learners_and_goes_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED, "checkpoint.every=100")) as cluster:
        cluster.replay()
        controller = cluster.controller()
        stalled, _ = await cluster.fake(Fault.STALL, at=2)
        cluster.learners(2)
        await asyncio.wait_for(stalled.assigned.wait(), WAIT_S)
        await controller.end()
        assert cluster.digests() == reference_digests(cluster.config)[:2]
        cluster.controller()
        cluster.learner()
        status = await cluster.finished()
    records = cluster.records()
    assert status.term == 2
    assert [record.iteration for record in records] == [0, 1, 2, 3]
    assert [record.term for record in records] == [1, 1, 2, 2]
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_finished_run_stays_finished_without_learners_or_replay(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        replay, controller, learners = cluster.replay(), cluster.controller(), cluster.learners(3)
        await cluster.finished()
        for service in (controller, *learners, replay):
            await service.end()
        before = (tmp_path / "metrics.jsonl").read_text()
        cluster.controller()
        status = await cluster.finished()
    assert status.iterations_committed == 4
    assert (tmp_path / "metrics.jsonl").read_text() == before


async def test_a_stalled_run_goes_on_when_a_learner_joins(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved("code.name=uncoded", "learners=1")) as cluster:
        cluster.serve()
        _, ending = await cluster.fake(Fault.DIE_MID_STREAM, at=2)
        await asyncio.wait_for(ending, WAIT_S)
        await cluster.status_when(
            lambda status: status.state == pb.RUN_STATE_STALLED, what="stalled"
        )
        cluster.learner()
        status = await cluster.finished()
    assert status.message == "4 iterations committed"
    assert cluster.digests() == reference_digests(cluster.config)
