"""Committed updates are compared with late digests; wrong ones are condemned."""

import asyncio
import logging
from pathlib import Path
from typing import NoReturn

import pytest
from tests.fakes import Fault
from tests.integration.cluster import (
    NETWORKS,
    SUM,
    Cluster,
    centralised,
    foresee_audits,
    resolved,
    tiny,
)
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import FullrankError
from fullrank.runs.record import Condemnation, condemnations
from fullrank_controller.rounds.disputes import Unsettled

pytestmark = pytest.mark.integration

CYCLIC = ("code.name=cyclic", "learners=4", "code.tolerance=1", "iterations=6")
"""Unit 0 is in rows 0 and 1, unit 1 in rows 1 and 2, unit 2 in rows 2 and 3."""
UNITS = (*NETWORKS, *CYCLIC)
PAIRS = (*SUM, "code.name=fractional", "learners=4", "code.tolerance=1", "iterations=6")
"""Rows 0 and 1 sum units 0 and 1, rows 2 and 3 sum units 2 and 3."""


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fullrank_controller")


@pytest.fixture(autouse=True)
def _audits_are_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    foresee_audits(monkeypatch)


@pytest.mark.parametrize(
    ("target", "every", "lag", "capacity"),
    [
        (UNITS, 1, 0, 4096),
        (UNITS, 100, 1, 64),
        (PAIRS, 100, 0, 4096),
    ],
    ids=["units", "units-ahead-full", "sum-journal"],
)
async def test_a_wrong_unit_that_was_committed_is_taken_back_and_its_author_is_convicted(
    tmp_path: Path,
    target: tuple[str, ...],
    every: int,
    lag: int,
    capacity: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a checkpoint every 100 iterations, the journal alone gives the earlier parameters.

    A capacity of 64 is full after the warm-up: repeated iterations need rows beyond it.
    """
    settings = tiny(
        *target,
        "audit.every=3",
        f"checkpoint.every={every}",
        "checkpoint.keep=9",
        f"collect.lag={lag}",
        f"replay.capacity={capacity}",
    )
    async with Cluster(tmp_path, settings) as cluster:
        cluster.serve()
        await cluster.fake(Fault.WRONG_UPDATE, at=2)  # the only holder of unit 0
        late, _ = await cluster.fake(Fault.STALL, at=2)
        cluster.learners(2)
        await cluster.committed(3)  # the audit awaits the late reports now
        late.release.set()
        await eventually(lambda: "condemned reason" in caplog.text, what="condemned")
        cluster.learners(2)
        status = await cluster.finished()
    assert "convicted learner=0" in caplog.text
    assert caplog.text.count("convicted") == 1
    assert status.term == 2
    assert cluster.outcome() == centralised(cluster.config)
    assert [record.term for record in cluster.records()] == [1, 1, 2, 2, 2, 2]
    [condemned] = condemnations(tmp_path)
    assert condemned == Condemnation(condemned=2, term=1)
    assert str(condemned) in status.verdicts
    assert "committed iterations 2 to 2 are taken back; dial again" in caplog.text  # to learners


async def test_the_controller_alone_finds_what_two_colluding_learners_agree_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The wrong learners alone hold unit 0; the stalled ones keep the round open meanwhile."""
    faults = [*(2 * [Fault.WRONG_UPDATE]), *(2 * [Fault.STALL])]
    async with Cluster(tmp_path, tiny(*PAIRS, "audit.every=3")) as cluster:
        cluster.serve()
        fakes = [(await cluster.fake(fault, at=2))[0] for fault in faults]
        await eventually(lambda: "recomputed iteration=2 unit=0" in caplog.text, what="recomputed")
        for fake in fakes:
            fake.release.set()
        await eventually(lambda: "condemned reason" in caplog.text, what="condemned")
        cluster.learners(cluster.config.learners)
        await cluster.finished()
    assert all(f"convicted learner={learner}" in caplog.text for learner in range(2))
    assert caplog.text.count("convicted") == 2
    assert cluster.outcome() == centralised(cluster.config)


async def test_what_cannot_be_computed_again_or_taken_back_stops_the_run_and_is_said_ever_after(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank_controller.rounds.disputes.read", lambda directory, first: [])
    async with Cluster(tmp_path, resolved(*CYCLIC, "audit.every=3")) as cluster:
        cluster.replay()
        controller = cluster.controller()
        late, _ = await cluster.fake(Fault.WRONG_LATE, at=2)
        cluster.learners(3)
        await cluster.committed(3)
        late.release.set()
        with pytest.raises(Unsettled, match="iteration 2, and it cannot be decided who is right"):
            await asyncio.wait_for(controller.task, WAIT_S)
        assert "convicted" not in caplog.text
        cluster.services.remove(controller)
        cluster.controller()
        cluster.learner()
        status = await cluster.finished()
    [caveat] = status.caveats
    assert "iteration 2, and it cannot be decided who is right" in caveat


def _computes_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the controller's numerics be others than those of all learners."""
    monkeypatch.setattr(
        "fullrank_controller.rounds.disputes.initial_algorithm",
        lambda config, training: _raise(FullrankError("not the fingerprint of the run")),
    )


def _raise(error: FullrankError) -> NoReturn:
    raise error


async def test_parties_to_a_dispute_that_nobody_can_settle_are_left_out_and_nothing_of_it_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _computes_otherwise(monkeypatch)
    async with Cluster(tmp_path, tiny(*UNITS, "audit.every=3")) as cluster:
        cluster.serve()
        await cluster.fake(Fault.WRONG_UPDATE, at=2)  # the only holder of unit 0
        late, _ = await cluster.fake(Fault.STALL, at=2)
        cluster.learners(2)
        await cluster.committed(3)
        late.release.set()
        await eventually(lambda: "condemned reason" in caplog.text, what="condemned")
        cluster.learners(2)
        status = await cluster.finished()
    assert "convicted" not in caplog.text
    assert "learners [0, 1] disagree" in caplog.text
    assert status.term == 2
    assert cluster.outcome() == centralised(cluster.config)


async def test_a_run_that_cannot_spare_the_parties_to_a_dispute_stops_and_has_taken_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny(*UNITS, "learners=2", "audit.every=3")  # each holds every unit
    with monkeypatch.context() as patch:
        _computes_otherwise(patch)
        async with Cluster(tmp_path, settings) as cluster:
            cluster.replay()
            controller = cluster.controller()
            await cluster.fake(Fault.WRONG_UPDATE, at=2)
            late, _ = await cluster.fake(Fault.STALL, at=2)
            await cluster.committed(3)
            late.release.set()
            with pytest.raises(Unsettled, match="too few other learners are left"):
                await asyncio.wait_for(controller.task, WAIT_S)
    async with Cluster(tmp_path, settings) as cluster:
        await cluster.train()
        assert cluster.outcome() == centralised(cluster.config)
