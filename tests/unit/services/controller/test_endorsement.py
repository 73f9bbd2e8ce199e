"""A commit rests on voices that count, and on no row of a learner that the controller refuted."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.unit.services.controller.builders import NUMERICS, SIZE, UNITS, make_run, open_round

from fullrank.codes import support
from fullrank.common.updates import unit_digest
from fullrank.rounds.decision import Decoded
from fullrank.rounds.quorum import Quorum
from fullrank.rounds.reports import Claim
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.endorsement import Endorsement
from fullrank_controller.rounds.events import RecomputedStatements
from fullrank_controller.rounds.open_round import OpenRound
from fullrank_controller.run import Run

TWICE = 2 * UNITS
"""Learners, of which j and j + 3 compute unit j."""
UPDATE = np.zeros(SIZE, np.float32)


class Recomputing:
    """The controller, which is asked for statements."""

    def __init__(self) -> None:
        self.asked: list[Claim] = []

    def __call__(self, claims: Sequence[Claim]) -> bool:
        self.asked += claims
        return True


def join(run: Run, host: str) -> Member:
    member = run.roster.join(host, now=0.0, domain=(host,), process=host.encode())
    run.roster.ready(member, numerics=NUMERICS, stable=True)
    return member


def heard(
    run: Run, hosts: Sequence[str], *, faults: int = 1
) -> tuple[Endorsement, OpenRound, Recomputing]:
    """A round in which the learners on these hosts have reported and sent all that they hold."""
    for host in hosts:
        join(run, host)
    opened, asks = open_round(run, name="replication"), Recomputing()
    endorsement = Endorsement(Quorum(faults=faults), opened, roster=run.roster, recompute=asks)
    for row, member in opened.assignment.holders.items():
        endorsement.heard(member.learner)
        for unit in support(opened.assignment.code.matrix[row]):
            opened.round.report(unit, unit_digest(UPDATE), learner=member.learner)
        opened.round.offer(learner=member.learner, row=row, coded=UPDATE)
    return endorsement, opened, asks


def decision_of(opened: OpenRound) -> Decoded:
    decision = opened.round.decide()
    assert isinstance(decision, Decoded)
    return decision


def apart() -> list[str]:
    return [f"host-{number}" for number in range(TWICE)]


async def test_two_learners_in_different_domains_bear_a_unit_out() -> None:
    endorsement, opened, asks = heard(make_run(), apart())
    assert not endorsement.withholds(decision_of(opened))
    assert not asks.asked


async def test_two_learners_of_one_domain_have_one_voice() -> None:
    endorsement, opened, asks = heard(make_run(), ["host"] * TWICE)
    assert endorsement.withholds(decision_of(opened))
    assert asks.asked == [Claim((unit,)) for unit in range(UNITS)]


def quarantined(run: Run, member: Member) -> None:
    run.roster.quarantine(member.learner, "it was wrong", iteration=5)


def gone(run: Run, member: Member) -> None:
    run.roster.leave(member)


@pytest.mark.parametrize("change", [quarantined, gone])
async def test_a_learner_that_is_quarantined_or_gone_has_no_voice(
    change: Callable[[Run, Member], None],
) -> None:
    run = make_run()
    endorsement, opened, asks = heard(run, apart())
    member = opened.assignment.holders[0]
    [unit] = support(opened.assignment.code.matrix[0])
    change(run, member)
    assert endorsement.withholds(decision_of(opened))
    assert asks.asked == [Claim((unit,))]


async def test_an_index_that_two_learners_have_had_in_a_round_has_no_voice() -> None:
    run = make_run()
    endorsement, opened, asks = heard(run, apart())
    [unit] = support(opened.assignment.code.matrix[0])
    gone(run, opened.assignment.holders[0])
    endorsement.heard(join(run, "another-host").learner)
    assert endorsement.withholds(decision_of(opened))
    assert asks.asked == [Claim((unit,))]


async def test_nothing_of_a_learner_that_the_controller_refuted_is_left_in_the_round() -> None:
    run = make_run()
    endorsement, opened, _ = heard(run, apart(), faults=0)
    liar = opened.assignment.holders[0]
    [unit] = support(opened.assignment.code.matrix[0])
    opened.round.report(unit, unit_digest(UPDATE + 1), learner=liar.learner)
    claim = Claim((unit,))
    endorsement.take(
        RecomputedStatements(
            ids=opened.ids, claims=frozenset({claim}), values={claim: unit_digest(UPDATE)}
        )
    )
    assert endorsement.convict() == [liar.learner]
    assert liar.quarantined
    assert liar.learner not in opened.round.reports
    assert liar.learner not in opened.round.received
    assert 0 not in opened.round.rows
    assert endorsement.convict() == []
