"""A faulty learner is refused with the reason, ends no service and changes no committed bit."""

import asyncio
from pathlib import Path

import grpc
import pytest
from tests.fakes import Fault
from tests.integration.cluster import (
    NETWORKS,
    SUM,
    Cluster,
    centralised,
    reference_digests,
    resolved,
    tiny,
)
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import Corrupted, NotDecodable
from fullrank.runs.verdicts import read_verdicts
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.rounds.auditor import Auditor

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")
"""Every row is needed: no round can be committed without the fake."""
PATIENT = "controller.deadline_s=4.0"
"""A deadline that passes soon, and not on a busy machine alone."""


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (Fault.NAN, grpc.StatusCode.INVALID_ARGUMENT, "not finite"),
        (Fault.NO_DIGESTS, grpc.StatusCode.INVALID_ARGUMENT, "came without the digests of units"),
        (Fault.GARBAGE, None, ""),
        (Fault.FORGED_IDENTITY, grpc.StatusCode.INVALID_ARGUMENT, "is not of this learner's row"),
        (Fault.DIE_MID_STREAM, grpc.StatusCode.CANCELLED, ""),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else "",
)
async def test_a_fault_ends_its_stream_alone_and_others_compute_its_row(
    tmp_path: Path, fault: Fault, code: grpc.StatusCode | None, said: str
) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        _, ending = await cluster.fake(fault)
        cluster.learners(2)
        ended = await asyncio.wait_for(ending, WAIT_S)
        status = await cluster.finished()
    assert len(status.learners) == 2
    assert [record.rows_per_learner for record in cluster.records()] == [1, 2, 2, 2]
    assert code in (None, ended.code)
    assert said in ended.details
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_stale_contribution_is_refused_and_its_sender_goes_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        fake, _ = await cluster.fake(Fault.STALE)
        cluster.learners(2)
        await cluster.finished()
        await eventually(lambda: bool(fake.refused), what="refused")
        await eventually(lambda: fake.answered == cluster.config.iterations, what="all answered")
    assert [refused.reason for refused in fake.refused] == [pb.REFUSAL_STALE]
    assert "of another term" in fake.refused[0].message
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_duplicate_is_refused_and_its_sender_goes_on(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        slow, _ = await cluster.fake(Fault.STALL)  # keeps the round open
        fake, _ = await cluster.fake(Fault.DUPLICATE)
        cluster.learner()
        await cluster.status_when(lambda status: status.rank == 2, what="two rows received")
        fake.release.set()
        await eventually(lambda: bool(fake.refused), what="refused")
        slow.release.set()
        await cluster.finished()
    assert [refused.reason for refused in fake.refused] == [pb.REFUSAL_DUPLICATE]
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_learner_of_another_version_is_told_both_versions(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved(*UNCODED)) as cluster:
        cluster.serve()
        _, ending = await cluster.fake(Fault.OTHER_VERSION)
        ended = await asyncio.wait_for(ending, WAIT_S)
        cluster.learners(3)
        await cluster.finished()
    assert ended.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "version 0.0.0 of the learner differs" in ended.details
    assert cluster.digests() == reference_digests(cluster.config)


@pytest.mark.smoke
async def test_a_stalled_learner_is_not_waited_for_within_the_tolerance(tmp_path: Path) -> None:
    async with Cluster(tmp_path, resolved("code.name=cyclic", "learners=4")) as cluster:
        cluster.serve()
        fake, _ = await cluster.fake(Fault.STALL)
        cluster.learners(3)
        await cluster.finished()
        await asyncio.wait_for(fake.assigned.wait(), WAIT_S)
        assert fake.answered == 0
    assert cluster.digests() == reference_digests(cluster.config)
    assert all(len(record.late) == 1 for record in cluster.records())


async def test_waiting_for_a_stalled_learner_is_visible_and_ends_when_it_answers(
    tmp_path: Path,
) -> None:
    settings = resolved(*UNCODED, PATIENT, "controller.undecodable=wait")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        fake, _ = await cluster.fake(Fault.STALL)
        cluster.learners(2)
        said = "after 4.0 s; learners [0] have not answered"  # the fake, which joined first
        status = await cluster.status_when(lambda status: said in status.message, what="stalled")
        assert status.state == pb.RUN_STATE_STALLED
        assert "rows of rank 2 do not determine each of 3 units" in status.message
        fake.release.set()
        await cluster.finished()
    assert cluster.digests() == reference_digests(cluster.config)


async def test_by_policy_others_compute_what_a_stalled_learner_does_not(tmp_path: Path) -> None:
    settings = resolved(*UNCODED, PATIENT, "controller.undecodable=recode")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        fake, _ = await cluster.fake(Fault.STALL, at=3)
        cluster.learners(2)
        await cluster.finished()
        await asyncio.wait_for(fake.assigned.wait(), WAIT_S)
        assert fake.answered == 3
    assert cluster.records()[3].attempt >= 1
    assert [record.epoch for record in cluster.records()] == [0, 0, 0, 0]
    assert 0 in cluster.records()[3].late
    assert cluster.digests() == reference_digests(cluster.config)


async def test_a_vector_of_which_nothing_more_comes_is_cut_off_and_others_compute_its_row(
    tmp_path: Path,
) -> None:
    settings = resolved(*UNCODED, PATIENT, "controller.undecodable=wait")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        _, ending = await cluster.fake(Fault.HANG_MID_STREAM, at=3)
        others = [(await cluster.fake(Fault.STALL, at=3))[0] for _ in range(2)]  # none is idle yet
        ended = await asyncio.wait_for(ending, WAIT_S)
        for other in others:
            other.release.set()
        status = await cluster.finished()
    assert ended.code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "no more of its vector came for 2.0 s" in ended.details
    assert len(status.learners) == 2
    assert cluster.digests() == reference_digests(cluster.config)


async def test_by_policy_an_undecodable_round_fails_at_its_deadline(tmp_path: Path) -> None:
    settings = resolved(*UNCODED, PATIENT, "controller.undecodable=fail")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        controller = cluster.controller()
        fake, _ = await cluster.fake(Fault.STALL)
        cluster.learners(2)
        await asyncio.wait_for(fake.assigned.wait(), WAIT_S)
        with pytest.raises(
            NotDecodable, match=r"each of 3 units after 4\.0 s; learners \[.*\d\] have not"
        ):
            await asyncio.wait_for(controller.task, WAIT_S)
    assert cluster.records() == []


WITHOUT_REDUNDANCY = {
    "units-mds": (*NETWORKS, "code.name=mds", "learners=3"),
    "sum-fractional": (*SUM, "code.name=fractional", "code.tolerance=0", "learners=4"),
}
"""Every row is needed to recover each unit, or the sum of all."""
WITH_REDUNDANCY = {
    "units-mds": (*NETWORKS, "code.name=mds", "learners=4"),
    "sum-fractional": (*SUM, "code.name=fractional", "learners=6"),
}
"""The rows of all learners but one recover the target."""


@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fault.WRONG_VECTOR, "units-mds"), (Fault.WRONG_DIGEST, "sum-fractional")],
)
async def test_what_does_not_match_its_digests_is_never_committed(
    tmp_path: Path, fault: Fault, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a controller that cannot compute and may add no rows, the error names the learners."""
    monkeypatch.setattr(Auditor, "computes_alike", lambda auditor: False)
    settings = tiny(*WITHOUT_REDUNDANCY[code], "controller.undecodable=fail")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        controller = cluster.controller()
        await cluster.fake(fault)
        cluster.learners(cluster.config.learners - 1)
        with pytest.raises(Corrupted, match=r"iteration 0: .* learner 0 on fake"):
            await asyncio.wait_for(controller.task, WAIT_S)
    assert cluster.records() == []
    assert {verdict.kind for verdict in read_verdicts(tmp_path)} == {"suspected"}


@pytest.mark.parametrize(
    ("fault", "code", "computes"),
    [
        (Fault.WRONG_VECTOR, "units-mds", True),
        (Fault.WRONG_DIGEST, "units-mds", False),
        (Fault.WRONG_VECTOR, "sum-fractional", False),
    ],
)
async def test_by_policy_others_compute_what_is_corrupt_and_whoever_was_wrong_is_named(
    tmp_path: Path, fault: Fault, code: str, computes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Remaining learners share all units of a sum; a code of each unit is assigned again."""
    if not computes:
        monkeypatch.setattr(Auditor, "computes_alike", lambda auditor: False)
    settings = tiny(*WITHOUT_REDUNDANCY[code], "controller.undecodable=recode")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        await cluster.fake(fault)
        cluster.learners(cluster.config.learners - 1)
        status = await cluster.finished()
    [wrong] = [each for each in status.learners if each.host == "fake"]
    assert wrong.quarantined
    records = cluster.records()
    assert [record.attempt for record in records] == [1, 0, 0, 0]
    assert [record.quarantined for record in records] == [(wrong.learner,), (), (), ()]
    if code == "sum-fractional":
        assert [record.code_rows for record in records] == [4, 3, 3, 3]
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (Fault.WRONG_VECTOR, "units-mds"),
        (Fault.BIT_FLIP, "sum-fractional"),
        (Fault.WRONG_DIGEST, "sum-fractional"),
    ],
)
async def test_a_learner_that_was_wrong_is_named_left_out_and_assigned_no_row_again(
    tmp_path: Path, fault: Fault, code: str
) -> None:
    """The others wait for the faulty one, so that it counts."""
    async with Cluster(tmp_path, tiny(*WITH_REDUNDANCY[code])) as cluster:
        cluster.serve()
        await cluster.fake(fault)
        honest = [(await cluster.fake(Fault.STALL))[0] for _ in range(cluster.config.learners - 1)]
        await cluster.status_when(
            lambda status: any(each.answered for each in status.learners), what="a faulty answer"
        )
        for fake in honest:
            fake.release.set()
        status = await cluster.finished()
    wrong, *others = status.learners
    assert (list(wrong.rows), bool(wrong.quarantined)) == ([], True)
    assert not any(each.quarantined for each in others)
    records = cluster.records()
    assert [record.quarantined for record in records] == [(wrong.learner,), (), (), ()]
    assert all(wrong.learner not in record.received for record in records)
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize("first", [0, 4], ids=["from the first round on", "once others are known"])
async def test_late_units_are_computed_by_idle_learners_before_any_deadline(
    tmp_path: Path, first: int
) -> None:
    """One learner answers no round from a certain one on."""
    settings = resolved(*UNCODED, "controller.undecodable=hedge", "iterations=8")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        await cluster.fake(Fault.STALL, at=first)
        cluster.learners(2)
        await cluster.finished()
    records = cluster.records()
    assert [record.attempt for record in records] == [0] * 8
    assert all(record.hedged and 0 in record.late for record in records[first:])
    assert cluster.digests() == reference_digests(cluster.config)


async def test_the_one_learner_that_is_left_commits_the_round_in_which_all_others_died(
    tmp_path: Path,
) -> None:
    settings = resolved("code.name=uncoded", "learners=8", "controller.undecodable=hedge")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        dying = [(await cluster.fake(Fault.DIE_MID_STREAM))[1] for _ in range(7)]
        cluster.learner()
        await asyncio.wait_for(asyncio.gather(*dying), WAIT_S)
        status = await cluster.finished()
    assert len(status.learners) == 1
    assert cluster.digests() == reference_digests(cluster.config)
