"""A commit rests on voices that count, and on no row of a learner that the controller refuted."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.unit.run.builders import SIZE, UPDATES, Host, Learner, Team, opened, team_of

from fullrank.codes import Code, codes, support
from fullrank.codes.learner_codes import code_for_learners
from fullrank.common.errors import Corrupted
from fullrank.common.updates import snap, unit_digest
from fullrank.rounds.decision import Decoded
from fullrank.rounds.quorum import Quorum
from fullrank.rounds.reports import Claim
from fullrank.run.endorsement import Endorsement
from fullrank.run.policies import RoundPolicies
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import (
    Arrived,
    DeadlineEnded,
    Recompute,
    RecomputedStatements,
    Reported,
)

UNITS = 3
TWICE = 2 * UNITS
"""Learners, of which j and j + 3 compute unit j."""
REPLICATION = code_for_learners(codes.build("replication"), learners=TWICE, units=UNITS, seed=0)
UPDATE = np.zeros(SIZE, np.float32)
APART = [f"host-{number}" for number in range(TWICE)]


def heard(
    hosts: Sequence[str], *, faults: int = 1, recomputes: bool = True
) -> tuple[Endorsement[Learner], OpenRound[Learner], Team]:
    """A round in which the learners on these hosts have reported and sent all that they hold."""
    team = Team([Learner(index, (host,)) for index, host in enumerate(hosts)])
    open_round = opened(team, REPLICATION)
    endorsement = Endorsement(
        Quorum(faults=faults),
        open_round.round,
        open_round.assignment,
        team,
        recomputes=lambda: recomputes,
    )
    for row, member in open_round.assignment.holders.items():
        endorsement.heard(member.learner)
        for unit in support(REPLICATION.matrix[row]):
            open_round.round.report(unit, unit_digest(UPDATE), learner=member.learner)
        open_round.round.offer(learner=member.learner, row=row, coded=UPDATE)
    return endorsement, open_round, team


def decision_of(open_round: OpenRound[Learner]) -> Decoded:
    decision = open_round.round.decide()
    assert isinstance(decision, Decoded)
    return decision


def test_two_learners_in_different_domains_bear_a_unit_out() -> None:
    endorsement, open_round, _ = heard(APART)
    assert not endorsement.withholds(decision_of(open_round))
    assert not endorsement.wanted


def test_two_learners_of_one_domain_have_one_voice() -> None:
    endorsement, open_round, _ = heard(["host"] * TWICE)
    assert endorsement.withholds(decision_of(open_round))
    assert endorsement.wanted == [Claim((unit,)) for unit in range(UNITS)]
    assert endorsement.withholds(decision_of(open_round))
    assert len(endorsement.wanted) == UNITS  # what is computed is not wanted again


def quarantined(team: Team, member: Learner) -> None:
    member.quarantined = "it was wrong"


def gone(team: Team, member: Learner) -> None:
    team.members.remove(member)


@pytest.mark.parametrize("change", [quarantined, gone])
def test_a_learner_that_is_quarantined_or_gone_has_no_voice(
    change: Callable[[Team, Learner], None],
) -> None:
    endorsement, open_round, team = heard(APART)
    [unit] = support(REPLICATION.matrix[0])
    change(team, open_round.assignment.holders[0])
    assert endorsement.withholds(decision_of(open_round))
    assert endorsement.wanted == [Claim((unit,))]


def test_an_index_that_two_learners_have_had_in_a_round_has_no_voice() -> None:
    endorsement, open_round, team = heard(APART)
    [unit] = support(REPLICATION.matrix[0])
    gone(team, open_round.assignment.holders[0])
    team.members.append(Learner(0, ("another-host",)))
    endorsement.heard(0)
    assert endorsement.withholds(decision_of(open_round))
    assert endorsement.wanted == [Claim((unit,))]


def test_a_unit_that_nobody_can_prove_ends_the_round_once_it_is_overdue() -> None:
    endorsement, open_round, _ = heard(["host"] * TWICE, recomputes=False)
    assert endorsement.withholds(decision_of(open_round))
    with pytest.raises(Corrupted, match="fewer than 2 learners in different failure domains"):
        endorsement.withholds(decision_of(open_round), overdue=True)


def test_nothing_of_a_learner_that_the_controller_refuted_is_left_in_the_round() -> None:
    endorsement, open_round, _ = heard(APART, faults=0)
    liar = open_round.assignment.holders[0].learner
    [unit] = support(REPLICATION.matrix[0])
    open_round.round.report(unit, unit_digest(UPDATE + 1), learner=liar)
    claim = Claim((unit,))
    endorsement.take([claim], {claim: unit_digest(UPDATE)})
    assert list(endorsement.convict()) == [liar]
    assert liar not in open_round.round.reports
    assert liar not in open_round.round.received
    assert 0 not in open_round.round.rows
    assert endorsement.convict() == {}


@pytest.mark.parametrize("undecodable", ["recode", "wait", "fail"])
def test_a_proven_result_is_committed_at_the_deadline_if_replay_bars_its_recomputation(
    undecodable: str,
) -> None:
    team = team_of(7)
    code = Code(name="proven", matrix=np.eye(3)[[0, 0, 0, 1, 1, 2, 2]])
    policies = RoundPolicies(undecodable=undecodable)
    host = Host(opened(team, code, policies=policies, quorum=Quorum()), team)
    for row in range(7):
        host.sends(row, [update + (row == 0) for update in UPDATES])
    [asked] = [order.claims for order in host.orders if isinstance(order, Recompute)]
    host.tell(RecomputedStatements(claims=frozenset(asked), values={}))
    host.tell(DeadlineEnded({}))
    assert host.decision.culprit == 0
    np.testing.assert_array_equal(host.decision.updates, np.stack(UPDATES))


def test_what_a_refuted_learner_had_sent_before_is_in_no_commit_of_the_round() -> None:
    """Its row of unit 1 is queued while the controller computes unit 0."""
    team = team_of(2)
    code = Code(name="pairs", matrix=np.eye(3)[[0, 1, 2, 2]], rows_per_learner=2)
    spot = Claim((0,))
    host = Host(opened(team, code, quorum=Quorum(drawn=frozenset([spot]))), team)
    wrong = [snap(update + np.float32(2.0**-20)) for update in UPDATES]
    host.sends(0, wrong)
    host.sends(2)
    host.sends(3)
    value = unit_digest(UPDATES[0])
    host.tell(RecomputedStatements(claims=frozenset([spot]), values={spot: value}))
    host.tell(Reported(learner=0, digests={1: unit_digest(wrong[1])}))
    host.tell(Arrived(learner=0, row=1, coded=wrong[1]))
    host.sends(4)  # learner 1 has been given what learner 0 held
    host.sends(5)
    assert {learner for _, learner in host.decision.rows} == {1}
    np.testing.assert_array_equal(host.decision.updates, np.stack(UPDATES))
