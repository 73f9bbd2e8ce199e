"""An open round ends with the decision that its rows and reports allow, and not before."""

import numpy as np
import pytest
from tests.unit.run.builders import SIZE, UPDATES, Host, Learner, Team, opened, team_of, uncoded

from fullrank.codes import Code
from fullrank.common.errors import Corrupted, NotDecodable
from fullrank.common.updates import snap
from fullrank.rounds.decision import Verdict
from fullrank.run.policies import RoundPolicies
from fullrank.run.round_orders import (
    AddRows,
    Assign,
    DeadlineEnded,
    Examine,
    Expel,
    Fail,
    GraceEnded,
    MembershipChanged,
    Quarantine,
    Resume,
    RoundOrder,
    SetTimer,
    Stall,
    Suspect,
)

CLOSE = 1.0 + 2.0**-24
NEARLY_EQUAL = Code(
    name="nearly equal",
    matrix=np.array([[1.0, 1.0, 0.0], [1.0, CLOSE, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
)
"""Rows 0 and 1 are so close that three rows decode and prove nothing; row 3 mends it."""
PAIRS = Code(name="pairs", matrix=np.eye(3)[[0, 0, 1, 2, 2]])
FOUR = [*UPDATES, snap(np.full(SIZE, 0.2, np.float32))]
WRONG = [snap(UPDATES[0] + np.float32(2.0**-20)), *UPDATES[1:]]


def added(orders: list[RoundOrder]) -> list[dict[int, dict[int, int]]]:
    """Units of extra rows by learner, for each time that rows were added."""
    return [
        {holder.learner: dict(rows) for holder, rows in order.units.items()}
        for order in orders
        if isinstance(order, AddRows)
    ]


def test_every_held_row_is_assigned_and_the_deadline_runs() -> None:
    team = team_of(3)
    host = Host(opened(team, uncoded()), team)
    assert host.orders == [SetTimer(), Assign([0, 1, 2])]


def test_a_round_commits_at_the_row_that_completes_it() -> None:
    team = team_of(5)
    host = Host(opened(team, PAIRS), team)
    for row in (4, 0, 2):
        host.sends(row)
    assert host.decision.exact
    np.testing.assert_array_equal(host.decision.updates, np.stack(UPDATES))


def test_an_inexact_result_is_not_committed_while_a_row_may_mend_it() -> None:
    team = team_of(4)
    host = Host(opened(team, NEARLY_EQUAL, policies=RoundPolicies(inexact="commit")), team)
    for row in range(4):
        host.sends(row)
    assert host.decision.verdict is Verdict.COMMIT
    assert [row for row, _ in host.decision.rows] == [0, 1, 2, 3]


@pytest.mark.parametrize("inexact", ["commit", "fail"])
def test_an_inexact_result_of_all_rows_is_for_the_policy(inexact: str) -> None:
    team = team_of(3)
    code = Code(name="nearly equal", matrix=NEARLY_EQUAL.matrix[:3])
    host = Host(opened(team, code, policies=RoundPolicies(inexact=inexact)), team)
    for row in range(3):
        host.sends(row)
    if inexact == "commit":
        assert host.decision.verdict is Verdict.INEXACT
    else:
        assert isinstance(host.failure, NotDecodable)


def inexact_at_the_deadline(undecodable: str, inexact: str) -> Host:
    """A round whose last row would mend its inexact result, and does not come."""
    team = team_of(4)
    policies = RoundPolicies(undecodable=undecodable, inexact=inexact)
    host = Host(opened(team, NEARLY_EQUAL, policies=policies), team)
    for row in range(3):
        host.sends(row)
    host.tell(DeadlineEnded({}))
    return host


@pytest.mark.parametrize("undecodable", ["recode", "wait", "fail"])
def test_an_inexact_result_may_be_committed_at_the_deadline(undecodable: str) -> None:
    host = inexact_at_the_deadline(undecodable, "commit")
    assert host.decision.verdict is Verdict.INEXACT


def assert_units_are_computed_again(host: Host) -> None:
    """Each unit is given to a learner, which sends it, and the round is committed exactly."""
    assert added(host.orders) == [{0: {4: 0}, 1: {5: 1}, 2: {6: 2}}]
    for row in (4, 5, 6):
        host.sends(row)
    assert host.decision.verdict is Verdict.COMMIT
    np.testing.assert_array_equal(host.decision.updates, np.stack(UPDATES))


def test_units_of_an_inexact_round_are_computed_again_at_the_deadline() -> None:
    host = inexact_at_the_deadline("recode", "fail")
    assert_units_are_computed_again(host)


def test_units_of_an_inexact_round_that_have_come_by_themselves_are_not_computed_again() -> None:
    host = inexact_at_the_deadline("recode", "fail")
    host.sends(6)
    host.tell(DeadlineEnded({}))
    assert added(host.orders)[1:] == [{2: {7: 0, 8: 1}}]


def inexact_without(undecodable: str, *, before: int = 3) -> tuple[Host, Team]:
    """A round whose last row would mend its inexact result, and leaves with its learner.

    Args:
        undecodable: The policy.
        before: Rows that arrive before it leaves; the others arrive afterwards.
    """
    team = team_of(4)
    policies = RoundPolicies(undecodable=undecodable)
    host = Host(opened(team, NEARLY_EQUAL, policies=policies), team)
    for row in range(before):
        host.sends(row)
    del team.members[3]
    host.tell(MembershipChanged())
    for row in range(before, 3):
        host.sends(row)
    return host, team


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("undecodable", ["recode", "wait", "fail"])
def test_units_are_computed_again_in_place_of_a_row_that_left_an_inexact_round(
    undecodable: str, before: int
) -> None:
    host, _ = inexact_without(undecodable, before=before)
    assert_units_are_computed_again(host)


def test_an_inexact_round_that_began_with_a_vacant_row_has_its_units_computed_again() -> None:
    team = team_of(3)
    host = Host(opened(team, NEARLY_EQUAL), team)
    for row in range(3):
        host.sends(row)
    assert added(host.orders) == [{0: {4: 0}, 1: {5: 1}, 2: {6: 2}}]


def test_units_that_leave_an_inexact_round_again_are_computed_by_those_who_are_left() -> None:
    host, team = inexact_without("recode")
    host.sends(6)
    del team.members[:2]
    host.tell(MembershipChanged())
    assert added(host.orders)[1:] == [{2: {7: 0, 8: 1}}]
    host.sends(7)
    host.sends(8)
    assert host.decision.exact


def test_an_inexact_round_that_all_learners_have_left_goes_on_with_a_newcomer() -> None:
    host, team = inexact_without("recode")
    team.members.clear()
    host.tell(MembershipChanged())
    team.members.append(Learner(7))
    host.tell(MembershipChanged())
    assert added(host.orders)[1:] == [{7: {7: 0, 8: 1, 9: 2}}]


def test_an_inexact_round_that_a_row_has_left_is_committed_if_its_policy_allows() -> None:
    team = team_of(3)
    host = Host(opened(team, NEARLY_EQUAL, policies=RoundPolicies(inexact="commit")), team)
    for row in range(3):
        host.sends(row)
    assert host.decision.verdict is Verdict.INEXACT


def test_a_round_that_no_unit_makes_exact_ends_at_the_deadline() -> None:
    """Each unit has come by itself, and the rows of huge coefficients still drown their digits."""
    team = team_of(4)
    code = Code(name="huge", matrix=NEARLY_EQUAL.matrix * 2.0**60)
    host = Host(opened(team, code), team)
    for row in range(3):
        host.sends(row)
    host.tell(DeadlineEnded({}))
    for row in (4, 5, 6):
        host.sends(row)
    host.tell(DeadlineEnded({}))
    assert isinstance(host.failure, NotDecodable)


def test_an_inexact_round_that_waits_or_fails_says_what_it_lacks() -> None:
    host = inexact_at_the_deadline("wait", "fail")
    [reason] = [order.reason for order in host.orders if isinstance(order, Stall)]
    assert "leaves an error of" in reason
    assert "learners [3] have not answered" in reason
    assert host.orders[-1] == SetTimer()
    host.sends(3)
    assert host.decision.exact
    failed = inexact_at_the_deadline("fail", "fail").failure
    assert isinstance(failed, NotDecodable)
    assert "leaves an error of" in str(failed)


def test_a_corrupt_round_names_its_parties_at_the_deadline_though_a_row_is_awaited() -> None:
    team = team_of(5)
    host = Host(opened(team, PAIRS, policies=RoundPolicies(undecodable="fail")), team)
    for row in range(4):
        host.sends(row, WRONG if row == 1 else UPDATES)
    host.tell(DeadlineEnded({}))
    assert isinstance(host.failure, Corrupted)
    assert "units [0]" in str(host.failure)
    assert "learner 0; learner 1" in str(host.failure)
    assert Suspect((0, 1), "learners disagree on the updates of units [0]") in host.orders


def test_a_learner_that_was_left_out_of_a_commit_is_quarantined() -> None:
    team = team_of(5)
    host = Host(opened(team, Code(name="thrice", matrix=np.eye(3)[[0, 0, 0, 1, 2]])), team)
    for row in (0, 1, 3, 4, 2):
        host.sends(row, WRONG if row == 1 else UPDATES)
    assert (host.decision.verdict, host.decision.culprit) == (Verdict.COMMIT, 1)
    assert [member.learner for member in team.members if member.quarantined] == [1]
    assert sum(isinstance(order, Quarantine) for order in host.orders) == 1


def test_units_of_a_learner_that_left_go_to_learners_that_have_nothing_to_do() -> None:
    team = team_of(5)
    round_ = opened(team, uncoded())
    host = Host(round_, team)
    host.sends(1)
    del team.members[0], team.members[1]  # learners 0 and 2; 3 and 4 hold nothing
    host.tell(MembershipChanged())
    assert added(host.orders) == [{1: {3: 0}, 3: {4: 2}}]
    assert round_.attempt == 1
    assert round_.holder_of(1, 1) is round_.holder_of(3, 1)
    assert round_.assignment.computes(3, 2)
    assert not round_.assignment.computes(3, 0)


def test_few_learners_get_several_units_each() -> None:
    team = team_of(3)
    round_ = opened(team, uncoded())
    host = Host(round_, team)
    host.sends(0)
    del team.members[1:]
    host.tell(MembershipChanged())
    assert added(host.orders) == [{0: {3: 1, 4: 2}}]
    round_.assignment.drop_extra_rows()
    assert round_.assignment.rows_of(team.members[0]) == [0]


def test_units_that_nobody_can_compute_are_waited_for_until_a_learner_comes() -> None:
    team = team_of(3)
    host = Host(opened(team, uncoded()), team)
    gone = team.members.pop()
    host.tell(MembershipChanged())
    assert added(host.orders) == []
    host.sends(0)  # now learner 0 has nothing to do
    assert added(host.orders) == [{0: {3: gone.learner}}]
    assert Resume() in host.orders


def test_a_doubted_learner_does_not_get_the_unit_again() -> None:
    """All rows of an uncoded round have come, and two learners disagree on unit 2."""
    team, wrong = team_of(4), [*UPDATES[:2], snap(UPDATES[2] + np.float32(2.0**-20))]
    code = Code(name="twice", matrix=np.eye(3)[[0, 1, 2, 2]])
    host = Host(opened(team, code), team)
    for row in (2, 3, 0, 1):
        host.sends(row, wrong if row == 3 else UPDATES)
    [units] = added(host.orders)
    again = {unit: learner for learner, rows in units.items() for unit in rows.values()}
    assert again[0] != 0
    assert again[1] != 1
    assert again[2] not in {2, 3}


@pytest.mark.parametrize("undecodable", ["recode", "wait", "fail"])
def test_a_deadline_is_for_the_policy(undecodable: str) -> None:
    team = team_of(4)
    host = Host(opened(team, uncoded(), policies=RoundPolicies(undecodable=undecodable)), team)
    host.sends(0)
    before = len(host.orders)
    host.tell(DeadlineEnded({}))
    later = host.orders[before:]
    if undecodable == "fail":
        assert isinstance(later[0], Fail)
        assert "learners [1, 2] have not answered" in str(host.failure)
    else:
        assert isinstance(later[0], Stall)
        assert added(later) == ([{0: {3: 1}, 3: {4: 2}}] if undecodable == "recode" else [])
        assert later[-1] == SetTimer()


def test_a_stream_that_pauses_within_a_vector_is_ended_at_the_deadline() -> None:
    team = team_of(3)
    policies = RoundPolicies(undecodable="wait", deadline_s=1.0)
    host = Host(opened(team, uncoded(), policies=policies), team)
    host.tell(DeadlineEnded({0: 0.4, 1: 0.6}))
    expelled = [order.holder for order in host.orders if isinstance(order, Expel)]
    assert expelled == [team.members[1]]


def test_a_row_that_is_not_finite_is_examined_once_and_its_sender_expelled() -> None:
    team = team_of(3)
    host = Host(opened(team, uncoded()), team)
    for row in (0, 1):
        host.sends(row, [np.full(SIZE, np.nan, np.float32)] * 3)
    expelled = [order.holder for order in host.orders if isinstance(order, Expel)]
    assert expelled == team.members[:2]
    assert [order for order in host.orders if isinstance(order, Examine)] == [Examine(0, [0])]


def test_the_row_of_a_learner_that_has_left_still_counts() -> None:
    team = team_of(3)
    round_ = opened(team, uncoded())
    host = Host(round_, team)
    host.sends(0)
    host.sends(1)
    leaver: Learner = team.members[2]
    host.sends(2)
    team.members.remove(leaver)
    assert host.decision.exact


def test_idle_learners_compute_what_late_ones_have_not_sent_the_rarest_unit_first() -> None:
    team = team_of(4)
    round_ = opened(team, uncoded(4))
    host = Host(round_, team)
    for row in (0, 1):
        host.sends(row, FOUR)
    assert not added(host.orders)
    host.tell(GraceEnded())
    assert added(host.orders) == [{0: {4: 2}, 1: {5: 3}}]
    host.sends(4, FOUR)  # learner 0 has computed unit 2
    assert added(host.orders)[1:] == [{0: {6: 3}}]
    host.sends(6, FOUR)
    np.testing.assert_array_equal(host.decision.updates, np.stack(FOUR))
    assert (round_.attempt, round_.hedged) == (0, 3)
    assert {holder.learner for holder in round_.unanswered()} == {1, 2, 3}


def test_no_learner_is_given_a_unit_twice() -> None:
    team = team_of(3)
    host = Host(opened(team, uncoded()), team)
    host.tell(GraceEnded())
    assert not added(host.orders)  # nobody is idle
    host.sends(0)
    host.sends(3)
    host.sends(4)
    assert added(host.orders) == [{0: {3: 1}}, {0: {4: 2}}]
    assert host.decision.exact


def test_a_newcomer_helps_a_late_round() -> None:
    team = team_of(3)
    host = Host(opened(team, uncoded()), team)
    host.tell(GraceEnded())
    team.members.append(Learner(7))
    host.tell(MembershipChanged())
    assert added(host.orders) == [{7: {3: 1}}]


def test_a_row_of_several_units_is_made_up_for_unit_by_unit() -> None:
    team = team_of(4)
    halves = Code(
        name="halves", matrix=np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), target=np.ones((1, 3))
    )
    host = Host(opened(team, halves), team)
    host.tell(GraceEnded())
    assert added(host.orders) == [{2: {2: 2}, 3: {3: 0}}]
