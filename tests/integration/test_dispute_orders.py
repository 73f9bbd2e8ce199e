"""One consistent lie, in every order in which true and false contributions can arrive."""

import asyncio
from itertools import permutations
from pathlib import Path

import pytest
from tests.fakes import FakeLearner, Fault
from tests.integration.cluster import Cluster, centralised, foresee_audits, resolved
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import Corrupted
from fullrank.runs.verdicts import read_verdicts
from fullrank_controller.rounds.auditor import Auditor

pytestmark = pytest.mark.integration

LIE_AT = 1
SETTINGS = ("code.name=cyclic", "learners=4", "code.tolerance=1", "iterations=4", "audit.every=2")
"""Unit 0 is in rows 0 and 1, unit 1 in rows 1 and 2, unit 2 in rows 2 and 3; learner 0 lies."""
ORDERS = [
    order if order == (0, 2, 3, 1) else pytest.param(order, marks=pytest.mark.thorough)
    for order in permutations(range(4))
]


@pytest.fixture(autouse=True)
def _audits_are_foreseen(monkeypatch: pytest.MonkeyPatch) -> None:
    foresee_audits(monkeypatch)


async def _attach(cluster: Cluster) -> list[FakeLearner]:
    """Four learners, of which the first has no honest word in the iteration of the lie."""
    cluster.serve()
    faults = [Fault.WRONG_LATE, *(3 * [Fault.STALL])]
    fakes = [
        (await cluster.fake(fault, at=LIE_AT, process=bytes([number])))[0]
        for number, fault in enumerate(faults)
    ]
    for fake in fakes:
        await asyncio.wait_for(fake.assigned.wait(), WAIT_S)
    return fakes


async def _let_answer(cluster: Cluster, fake: FakeLearner) -> None:
    """Let a learner contribute, and return once the controller has judged it."""
    answered = fake.answered
    fake.release.set()
    await eventually(lambda: fake.answered > answered, what="it has contributed")


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(map(str, order)))
async def test_a_default_run_survives_a_lie_in_every_order_and_names_its_author(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    async with Cluster(tmp_path, resolved(*SETTINGS)) as cluster:
        fakes = await _attach(cluster)
        for learner in order:
            await _let_answer(cluster, fakes[learner])
        cluster.learners(4)  # for those that a controller that begins again has lost
        await cluster.finished()
        outcome = cluster.outcome()
    assert outcome == centralised(cluster.config)
    convicted = [verdict for verdict in read_verdicts(tmp_path) if verdict.kind == "convicted"]
    assert [verdict.party and verdict.party.process for verdict in convicted] == ["00"]
    assert sum(len(record.quarantined) for record in cluster.records()) >= 1


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "".join(map(str, order)))
async def test_where_the_controller_cannot_compute_the_run_survives_or_names_the_parties(
    tmp_path: Path, order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Auditor, "computes_alike", lambda auditor: False)
    async with Cluster(tmp_path, resolved(*SETTINGS)) as cluster:
        fakes = await _attach(cluster)
        stopped = ""
        try:
            for learner in order:
                await _let_answer(cluster, fakes[learner])
            cluster.learners(4)
            await cluster.finished()
        except Corrupted as error:
            stopped = str(error)
        digests, parameters = centralised(cluster.config)
        named = [verdict.party and verdict.party.process for verdict in read_verdicts(tmp_path)]
        assert "00" in named
        if stopped:
            assert "learner 0 on fake (" in stopped
            assert cluster.digests() == digests[:LIE_AT]
        else:
            assert cluster.outcome() == (digests, parameters)


async def test_a_conviction_is_part_of_the_run_and_outlives_its_controller(tmp_path: Path) -> None:
    """It is in metrics, status and the run directory, also once another controller resumes."""
    async with Cluster(tmp_path, resolved(*SETTINGS)) as cluster:
        fakes = await _attach(cluster)
        for learner in (0, 1, 2, 3):
            await _let_answer(cluster, fakes[learner])
        cluster.learners(1)
        status = await cluster.finished()
        assert [line.partition(" (")[0] for line in status.verdicts] == ["learner 0 on fake"]
    assert [record.quarantined for record in cluster.records()] == [(), (0,), (), ()]
    longer = resolved(*SETTINGS, "iterations=6")
    async with Cluster(tmp_path, longer) as cluster:
        cluster.serve()
        again, _ = await cluster.fake(Fault.OK, process=bytes([0]))
        cluster.learners(4)
        status = await cluster.finished()
    assert again.answered == 0
    assert status.learners[0].quarantined == "units [0] of iteration 1 were wrong, computed again"
    assert len(status.verdicts) == 1
