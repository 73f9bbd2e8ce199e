"""Words of a peer end its own stream alone: claims of terms, texts without measure, reports."""

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
from tests.unit.services.controller.builders import join, make_run, open_round
from tests.waiting import WAIT_S

from fullrank.common.errors import InvalidContribution, ServiceLost, StaleTerm
from fullrank.common.types import RunTerm
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import Arrived
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.identity import TermGuard
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.auditor import holders_in
from fullrank_controller.run import Run
from fullrank_controller.streams import next_of

OWN, LATER = RunTerm("run", 2), RunTerm("run", 2**63)


class Witness:
    """Something that carries terms; ``error`` is its answer."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.asked = error, 0

    async def ask(self) -> None:
        """Answer."""
        self.asked += 1
        if self.error is not None:
            raise self.error


async def test_a_claim_that_nothing_bears_out_ends_nothing_and_is_asked_about_once() -> None:
    guard, silent, other = TermGuard(OWN, every_s=WAIT_S), Witness(ServiceLost("away")), Witness()
    guard.witnesses += [silent.ask, other.ask]
    ending = asyncio.create_task(guard.superseded())
    for served in (OWN, RunTerm("another", 9), RunTerm("run", 1)):
        await guard.check(served, peer="ipv4:10.0.0.7:1")
    for _ in range(100):
        with pytest.raises(StaleTerm, match="nothing that carries its terms knows of one after"):
            await guard.check(LATER, peer="ipv4:10.0.0.7:1")
    assert (silent.asked, other.asked) == (1, 1)
    assert not ending.done()
    ending.cancel()


async def test_a_claim_that_a_witness_bears_out_ends_the_controller() -> None:
    guard = TermGuard(OWN, every_s=WAIT_S)
    guard.witnesses += [Witness(ServiceLost("away")).ask, Witness(StaleTerm("term 3")).ask]
    with pytest.raises(StaleTerm, match="term 3"):
        await guard.check(LATER, peer="ipv4:10.0.0.7:1")
    with pytest.raises(StaleTerm, match="term 3"):
        await asyncio.wait_for(guard.superseded(), WAIT_S)


async def _said(message: pb.LearnerMessage) -> AsyncIterator[pb.LearnerMessage]:
    yield message


@pytest.mark.parametrize(
    ("opening", "said"),
    [
        (pb.Hello(host="h" * 256), r"hello\.host has 256 bytes"),
        (pb.Hello(domain="/" * 200), r"hello\.domain has 201 levels"),
        (pb.Hello(process=bytes(65)), r"hello\.process has 65 bytes"),
        (pb.Ready(fingerprint="f" * 1025), r"ready\.fingerprint has 1025 bytes"),
    ],
    ids=["host", "levels", "process", "fingerprint"],
)
async def test_a_text_without_measure_is_refused_by_name(
    opening: pb.Hello | pb.Ready, said: str
) -> None:
    kind = type(opening).__name__.lower()
    message = pb.LearnerMessage()
    getattr(message, kind).CopyFrom(opening)
    with pytest.raises(InvalidContribution, match=said):
        await next_of(_said(message), within_s=WAIT_S, kind=kind)


def committed(run: Run, opened: OpenRound[Member]) -> None:
    """Commit iteration 5, and close its round."""
    holders = holders_in(opened.assignment)
    run.ledger.commit(5, (b"zero", b"one", b"two"), {}, holders)
    run.reception.close()


def report(run: Run, ids: Ids, learner: int, unit: int, digest: bytes) -> None:
    run.reception.report(learner, [pb.UnitDone(ids=ids, unit=unit, digest=digest)])


async def test_a_new_epoch_hides_no_report() -> None:
    run = make_run()
    members = join(run, 3)
    opened = open_round(run, name="uncoded")
    committed(run, opened)
    ids = run.identity.ids(opened)
    run.membership.assignment = None  # another epoch
    report(run, ids, 0, 1, b"not its unit")
    assert run.ledger.dispute() is None
    run.roster.leave(members[1])
    join(run, 1)  # has the index of the one that left
    report(run, ids, 1, 1, b"never its unit")
    assert run.ledger.dispute() is None
    report(run, ids, 0, 0, b"other")
    dispute = run.ledger.dispute()
    assert dispute is not None
    assert dispute.parties == {0}
    run.ledger.settle(5)
    members[2].contributes(5)
    run.roster.quarantine(2, "it was wrong", iteration=5)
    report(run, ids, 2, 2, b"other")
    assert run.ledger.dispute() is None


async def test_a_report_on_what_a_learner_did_not_hold_reserves_no_index() -> None:
    run = make_run()
    join(run, 3)
    opened = open_round(run, name="uncoded")
    (spare,) = join(run, 1)
    ids = run.identity.ids(opened)
    ids.iteration = 2**62
    report(run, ids, spare.learner, 0, b"early")
    run.roster.leave(spare)
    assert run.roster.join("host", now=0.0, since=5).learner == spare.learner


@pytest.mark.parametrize("sent", ["vector", "report", "late report"])
async def test_a_learner_is_blamed_for_what_it_sent(sent: str) -> None:
    """Not the one that left before it sent anything, and had its index."""
    run = make_run()
    earlier, *_ = join(run, 3)
    run.roster.leave(earlier)
    (liar,) = join(run, 1)
    opened = open_round(run, name="uncoded")
    ids = run.identity.ids(opened)
    if sent == "late report":
        committed(run, opened)
    if sent == "vector":
        vector = np.zeros(run.identity.problem.vector_size)
        arrived = Arrived(learner=liar.learner, row=0, coded=vector, batch_digest=b"")
        run.reception.arrive(ids, arrived, streamed=True)
    else:
        report(run, ids, liar.learner, 0, b"other")
    run.roster.quarantine(liar.learner, "it was wrong", iteration=ids.iteration)
    assert liar.quarantined


@pytest.mark.parametrize("name", ["term", "epoch"])
async def test_a_late_report_of_another_term_or_epoch_is_not_filed(name: str) -> None:
    run = make_run()
    join(run, 3)
    opened = open_round(run, name="uncoded")
    committed(run, opened)
    ids = run.identity.ids(opened)
    setattr(ids, name, getattr(ids, name) - 1)
    report(run, ids, 0, 0, b"other")
    assert run.ledger.dispute() is None
