"""Sums of units through real services: bits of the centralised run, audits, and restarts."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import Fault
from tests.integration.cluster import TINY, Cluster, centralised
from tests.registries import shipped
from tests.waiting import WAIT_S, eventually

from fullrank.codes import Code, codes
from fullrank.common.errors import Corrupted
from fullrank.config import Resolved, load
from fullrank.planning import Observation
from fullrank.planning.cluster import Cluster as Machines
from fullrank.planning.planned_run import observation_of
from fullrank.planning.simulation import play
from fullrank.runs.record import IterationRecord
from fullrank.stragglers import FixedK
from fullrank_controller.membership import auto_code
from fullrank_faultlab.simulation import toy_algorithm

assert toy_algorithm  # importing it registers the algorithm

pytestmark = pytest.mark.integration

SUM = ("algorithm.name=summed_toy", "algorithm.batch_size=8", "environment.agents=4")
"""T = 1^T over four units."""
GROUPS = (*SUM, "algorithm.groups=2")
"""T = I (x) 1^T: two sums of two units each."""
LATE = ("stragglers.name=bernoulli", "stragglers.probability=0.4", "stragglers.delay_s=0.05")
"""Learners are late at random, so that J differs from round to round."""
SLOW = ("stragglers.name=bernoulli", "stragglers.probability=1.0", "stragglers.delay_s=0.2")
"""Real learners are late, so that rounds use what a fake sends."""
PAIRS = (*SUM, "code.name=fractional", "learners=4", "code.tolerance=1", "iterations=6")
"""Rows 0 and 1 sum units 0 and 1, rows 2 and 3 sum units 2 and 3."""


def resolved(*overrides: str) -> Resolved:
    """The tiny configuration, without the settings of networks, with overrides."""
    tiny = [setting for setting in TINY if not setting.startswith("algorithm.")]
    return load(None, environ={}, overrides=[*tiny, *overrides]).check()


def sizes() -> Iterator[Any]:
    """Targets, codes and numbers of learners that exist for four units."""
    for code in shipped(codes):
        for learners in (5, 6, 8) if code != "ldpc" else (6,):  # ldpc exists for some sizes only
            yield pytest.param(SUM, code, learners, id=f"sum-{code}-{learners}")
        yield pytest.param(GROUPS, code, 6, id=f"groups-{code}-6")


@pytest.mark.filterwarnings("ignore:vandermonde")
@pytest.mark.parametrize(("target", "code", "learners"), [*sizes()])
async def test_every_code_commits_the_bits_of_the_centralised_run(
    tmp_path: Path, target: tuple[str, ...], code: str, learners: int
) -> None:
    settings = resolved(*target, *LATE, f"code.name={code}", f"learners={learners}")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert all(record.exact for record in cluster.records())


@pytest.mark.parametrize(
    ("target", "learners", "tolerance"),
    [
        pytest.param(SUM, 2, 1, marks=pytest.mark.smoke),
        (SUM, 1, 0),
        (SUM, 3, 0),
        (GROUPS, 2, 0),
        (GROUPS, 3, 0),
    ],
)
async def test_fewer_learners_than_units_suffice_for_their_sums(
    tmp_path: Path, target: tuple[str, ...], learners: int, tolerance: int
) -> None:
    sizes = (f"learners={learners}", f"code.tolerance={tolerance}")
    settings = resolved(*target, *LATE, "code.name=fractional", *sizes)
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert {record.code_rows for record in cluster.records()} == {learners}


async def test_the_planner_turns_to_a_code_of_the_sum_where_most_learners_are_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner is given simulated times: no code recovers four units from three learners."""

    def simulated(record: IterationRecord, code: Code, moved: object) -> Observation:
        late = FixedK(k=5, delay_s=0.4)
        played = play(Machines(unit_s=0.02), code, late, iterations=[record.iteration], seed=0)
        return observation_of(played, 0, code)

    monkeypatch.setattr(auto_code, "observation_of_record", simulated)
    settings = resolved(*SUM, "code.name=auto", "learners=8", "iterations=24")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    records = cluster.records()
    assert (records[0].code, records[-1].code) == ("cyclic", "fractional")
    assert cluster.outcome() == centralised(cluster.config)


async def test_learners_that_leave_for_good_leave_enough_for_the_sum(tmp_path: Path) -> None:
    settings = resolved(*SUM, "code.name=fractional", "learners=6", "code.tolerance=1")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        for _ in range(4):
            await cluster.fake(Fault.DIE_BEFORE, at=2)
        cluster.learners(2)
        await cluster.finished()
    assert cluster.outcome() == centralised(cluster.config)
    assert [record.code_rows for record in cluster.records()] == [6, 6, 6, 2]


@pytest.mark.parametrize("fault", [Fault.WRONG_VECTOR, Fault.WRONG_DIGEST])
@pytest.mark.parametrize("code", ["uncoded", "mds"])
async def test_a_sum_that_does_not_match_its_reports_is_never_committed(
    tmp_path: Path, fault: Fault, code: str
) -> None:
    settings = resolved(*SUM, f"code.name={code}", "learners=4", "controller.undecodable=fail")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        controller = cluster.controller()
        await cluster.fake(fault)
        cluster.learners(3)
        with pytest.raises(Corrupted, match="iteration 0"):
            await asyncio.wait_for(controller.task, WAIT_S)
    assert cluster.records() == []


@pytest.mark.parametrize("fault", [Fault.WRONG_VECTOR, Fault.WRONG_DIGEST])
@pytest.mark.parametrize("code", ["uncoded", "mds"])
async def test_by_policy_others_compute_what_is_corrupt_and_its_author_is_named(
    tmp_path: Path, fault: Fault, code: str
) -> None:
    async with Cluster(tmp_path, resolved(*SUM, f"code.name={code}", "learners=4")) as cluster:
        cluster.replay()
        cluster.controller()
        await cluster.fake(fault)
        cluster.learners(3)
        status = await cluster.finished()
    [wrong] = [each for each in status.learners if each.host == "fake"]
    assert wrong.quarantined
    assert_only_the_first_round_was_corrupt(cluster, wrong.learner)


@pytest.mark.parametrize("fault", [Fault.WRONG_VECTOR, Fault.WRONG_DIGEST])
async def test_the_learners_that_remain_after_a_corrupt_round_share_all_units(
    tmp_path: Path, fault: Fault
) -> None:
    code = ("code.name=fractional", "code.tolerance=0", "learners=4")
    async with Cluster(tmp_path, resolved(*SUM, *code)) as cluster:
        cluster.replay()
        cluster.controller()
        await cluster.fake(fault)
        cluster.learners(3)
        status = await cluster.finished()
    [wrong] = [each for each in status.learners if each.host == "fake"]
    assert_only_the_first_round_was_corrupt(cluster, wrong.learner)
    assert [record.code_rows for record in cluster.records()] == [4, 3, 3, 3]


def assert_only_the_first_round_was_corrupt(cluster: Cluster, learner: int) -> None:
    records = cluster.records()
    assert [record.attempt for record in records] == [1, 0, 0, 0]
    assert [record.quarantined for record in records] == [(learner,), (), (), ()]
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize("code", ["mds", "fractional"])
@pytest.mark.parametrize(
    "fault", [Fault.WRONG_VECTOR, Fault.BIT_FLIP, Fault.SCALE, Fault.WRONG_DIGEST]
)
async def test_a_wrong_learner_is_named_left_out_and_assigned_no_row_again(
    tmp_path: Path, fault: Fault, code: str
) -> None:
    settings = resolved(*SUM, *SLOW, f"code.name={code}", "learners=6")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        await cluster.fake(fault)
        cluster.learners(5)
        status = await cluster.finished()
    [wrong] = [each for each in status.learners if each.host == "fake"]
    assert (list(wrong.rows), bool(wrong.quarantined)) == ([], True)
    assert all(not each.quarantined for each in status.learners if each is not wrong)
    records = cluster.records()
    assert [record.quarantined for record in records] == [(wrong.learner,), (), (), ()]
    assert all(wrong.learner not in record.received for record in records)
    assert cluster.outcome() == centralised(cluster.config)


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fullrank_controller")


@pytest.mark.parametrize("every", [1, 100])
async def test_a_wrong_unit_in_a_committed_sum_is_rolled_back_and_its_author_convicted(
    tmp_path: Path, every: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With a checkpoint every 100 iterations, the journal alone gives the earlier parameters."""
    settings = resolved(*PAIRS, "audit.every=3", f"checkpoint.every={every}", "checkpoint.keep=9")
    async with Cluster(tmp_path, settings) as cluster:
        cluster.replay()
        cluster.controller()
        await cluster.fake(Fault.WRONG_UPDATE, at=2)
        late, _ = await cluster.fake(Fault.STALL, at=2)
        cluster.learners(2)
        await cluster.committed(3)  # the audit awaits the late reports now
        late.release.set()
        await eventually(lambda: "rolled_back" in caplog.text, what="rolled back")
        cluster.learners(2)
        status = await cluster.finished()
    assert "convicted learner=0" in caplog.text
    assert caplog.text.count("convicted") == 1
    assert status.term == 2
    assert [record.term for record in cluster.records()] == [1, 1, 2, 2, 2, 2]
    assert cluster.outcome() == centralised(cluster.config)


async def test_a_late_lie_about_a_unit_of_a_right_sum_takes_nothing_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path, resolved(*PAIRS, "audit.every=3")) as cluster:
        cluster.replay()
        cluster.controller()
        late, _ = await cluster.fake(Fault.WRONG_LATE, at=2)
        cluster.learners(3)
        await cluster.committed(3)
        late.release.set()
        await eventually(lambda: "convicted" in caplog.text, what="convicted")
        status = await cluster.finished()
    assert [each.quarantined != "" for each in status.learners] == [True, False, False, False]
    assert status.term == 1
    assert cluster.outcome() == centralised(cluster.config)


async def test_the_controller_alone_finds_what_all_holders_of_a_unit_agree_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path, resolved(*PAIRS, "audit.every=3")) as cluster:
        cluster.replay()
        cluster.controller()
        faults = [Fault.WRONG_UPDATE, Fault.WRONG_UPDATE, Fault.STALL, Fault.STALL]
        fakes = [(await cluster.fake(fault, at=2))[0] for fault in faults]
        await eventually(lambda: "recomputed iteration=2 unit=0" in caplog.text, what="recomputed")
        for fake in fakes:
            fake.release.set()
        await eventually(lambda: "rolled_back" in caplog.text, what="rolled back")
        cluster.learners(4)
        await cluster.finished()
    assert {f"convicted learner={j}" in caplog.text for j in (0, 1)} == {True}
    assert caplog.text.count("convicted") == 2
    assert cluster.outcome() == centralised(cluster.config)


@pytest.mark.parametrize("target", [SUM, GROUPS], ids=["sum", "groups"])
@pytest.mark.parametrize("every", [1, 100])
async def test_a_restarted_controller_goes_on_from_its_journal_with_the_same_bits(
    tmp_path: Path, every: int, target: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = ("code.name=fractional", "learners=5")
    settings = resolved(*target, *code, f"checkpoint.every={every}", "environment.horizon=7")
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.run_out_of_disk(2, monkeypatch)
    assert len(cluster.records()) == 2
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
    assert cluster.outcome() == centralised(cluster.config)
    assert [record.term for record in cluster.records()] == [1, 1, 2, 2]
