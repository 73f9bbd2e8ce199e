"""Rows are assigned to the attached learners; too few of them get a smaller code."""

import numpy as np
import pytest
from tests.unit.services.controller.builders import UNITS, join, make_run

from fullrank.codes import Code, Tolerance
from fullrank.codes.targets import each_unit, sum_of_units, sums_of_groups
from fullrank.common.errors import CodeError
from fullrank.config import PluginSettings
from fullrank.run import assignment as module
from fullrank.run.assignment import (
    RowAssignment,
    code_of_learners,
    make_assignment,
)
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster


def assigned(
    learners: int, *, name: str = "cyclic", **params: object
) -> tuple[RowAssignment[Member], list[Member]]:
    members = join(make_run(), learners)
    requested = PluginSettings(name=name, params=params)
    assignment = make_assignment(0, members, requested=requested, units=UNITS, seed=0)
    assert assignment is not None
    return assignment, members


@pytest.mark.parametrize(
    ("learners", "each", "tolerance"),
    [(7, 1, 2), (5, 1, 2), (4, 2, 2), (3, 3, 2), (2, 3, 1), (1, 3, 0)],
)
async def test_a_code_keeps_its_tolerance_while_more_learners_are_there(
    learners: int, each: int, tolerance: int
) -> None:
    assignment, members = assigned(learners, tolerance=2)
    assert (assignment.code.rows_per_learner, assignment.code.tolerance) == (each, tolerance)
    assert [member.learner for member in members] == sorted(
        {holder.learner for holder in assignment.holders.values()}
    )
    for member in members:
        rows = assignment.rows_of(member)
        assert len({row // each for row in rows}) == 1, "a learner has one share"
    assert assignment.remaining_tolerance() == tolerance
    assert assignment.spares == 0


async def test_learners_beyond_the_largest_code_that_exists_are_spares() -> None:
    built = {
        learners: code_of_learners("ldpc", {}, learners=learners, units=4, seed=0)
        for learners in range(4, 11)
    }
    codes = {learners: code for learners, code in built.items() if code is not None}
    assert codes.keys() == built.keys()
    largest = {learners: int((code.load > 0).sum()) for learners, code in codes.items()}
    spared = [learners for learners, rows in largest.items() if rows < learners]
    assert spared, "ldpc exists for some sizes only"
    for learners in spared:
        rows = max(rows for other, rows in largest.items() if other <= learners)
        assert (codes[learners].learners, largest[learners]) == (learners, rows)


async def test_fewer_learners_than_units_hold_several_rows_each() -> None:
    members = join(make_run(), 2)
    assignment = make_assignment(
        0, members, requested=PluginSettings(name="uncoded"), units=UNITS, seed=0
    )
    assert assignment is not None
    assert [assignment.rows_of(member) for member in members] == [[0], [2, 3]]
    assert assignment.held(members).sum() == UNITS
    assignment.drop_absent(members[1:])
    assert (assignment.vacant(), assignment.remaining_tolerance()) == ([0], -1)


async def test_nobody_holds_no_code() -> None:
    requested = PluginSettings(name="mds")
    assert make_assignment(0, [], requested=requested, units=UNITS, seed=0) is None


async def test_empty_rows_are_not_assigned() -> None:
    assignment, members = assigned(5, name="uncoded")
    assert assignment.holders == dict(enumerate(members[:3]))
    assert assignment.spares == 2
    assert assignment.vacant() == []
    assert assignment.remaining_tolerance() == 0


async def test_a_vacant_row_costs_tolerance_until_a_spare_takes_it() -> None:
    assignment, members = assigned(5, tolerance=1)
    left = [member for member in members if member.learner != 2]
    assignment.drop_absent(left)
    assert assignment.vacant() == [2]
    assert assignment.remaining_tolerance() == 0
    [newcomer] = join(make_run())
    assert assignment.fill([*left, newcomer])
    assert newcomer in assignment.holders.values()
    assert (
        assignment.placement.changed == assignment.code.load[2]
    )  # no other learner computes a new unit
    assert assignment.remaining_tolerance() == 1


async def test_a_code_is_not_for_those_who_could_hold_more_of_another() -> None:
    assignment, members = assigned(4, tolerance=1)
    assert assignment.fill(members)
    assert not assignment.fill([*members, *join(make_run())])  # a newcomer
    spared, members = assigned(6, name="uncoded")
    spared.drop_absent(members[2:])
    assert spared.fill(members[2:])
    assert not spared.vacant()


async def test_no_learner_gets_a_second_row() -> None:
    assignment, members = assigned(4, tolerance=1)
    assignment.drop_absent(members[1:])
    assert assignment.fill(members[1:])
    assert assignment.vacant() == [0]


async def test_fewer_spares_than_vacant_shares_ask_for_another_code() -> None:
    assignment, members = assigned(5, name="uncoded")
    assert assignment.spares == 2
    assignment.drop_absent(members[2:])
    assert not assignment.fill(members[2:4])
    assert assignment.vacant() == [0, 1]


async def test_rows_that_are_left_may_still_determine_everything() -> None:
    assignment, members = assigned(4, tolerance=1)
    assignment.drop_absent(members[1:])
    assert assignment.decodable
    assignment.drop_absent(members[2:])
    assert not assignment.decodable


async def test_holders_of_a_unit_are_in_different_domains() -> None:
    roster = Roster()
    members = [roster.join("pod", now=0.0, domain=("zone", f"node{j // 2}")) for j in range(6)]
    requested = PluginSettings(name="cyclic", params={"tolerance": 2})
    assignment = make_assignment(0, members, requested=requested, units=UNITS, seed=0)
    assert assignment is not None
    for unit in range(UNITS):
        nodes = [
            assignment.holders[row].domain for row in range(6) if assignment.code.matrix[row, unit]
        ]
        assert len(set(nodes)) == len(nodes) == 3


async def test_a_new_assignment_leaves_units_where_they_are() -> None:
    assignment, members = assigned(8, tolerance=2)
    requested = PluginSettings(name="cyclic", params={"tolerance": 2})
    left = [member for member in members if member.learner != 3]
    fresh = make_assignment(1, left, requested=requested, units=UNITS, seed=0, previous=assignment)
    assert fresh is not None
    moved = fresh.held(left) & ~assignment.held(left)
    assert fresh.placement.changed == moved.sum() <= 2


async def test_a_code_without_its_stated_tolerance_is_not_assigned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix = np.eye(4, UNITS)
    false = Code(name="false", matrix=matrix, known_tolerance=Tolerance(1, "closed form"))
    monkeypatch.setattr(module, "code_for_learners", lambda *_, **__: false)
    with pytest.raises(CodeError, match="does not tolerate the 1 losses"):
        assigned(4)


@pytest.mark.parametrize(("learners", "tolerance"), [(6, 2), (3, 2), (2, 1), (1, 0)])
async def test_fewer_learners_than_units_hold_a_code_of_their_sum(
    learners: int, tolerance: int
) -> None:
    code = code_of_learners(
        "fractional",
        {"tolerance": 2},
        learners=learners,
        units=4,
        seed=0,
        target=sum_of_units(4),
    )
    assert code is not None
    assert (code.rows, code.tolerance) == (learners, tolerance)


@pytest.mark.parametrize("learners", [7, 6, 5, 4, 3])
async def test_a_code_keeps_its_tolerance_for_a_sum_as_for_each_unit(learners: int) -> None:
    for target, most in ((sum_of_units(4), 1), (each_unit(4), 4)):
        code = code_of_learners(
            "cyclic", {"tolerance": 2}, learners=learners, units=4, seed=0, target=target
        )
        assert code is not None
        assert (code.learners, code.tolerance) == (learners, 2)
        assert code.rows_per_learner <= most


async def test_several_sums_keep_the_tolerance_of_one() -> None:
    code = code_of_learners(
        "fractional",
        {"tolerance": 3},
        learners=6,
        units=8,
        seed=0,
        target=sums_of_groups(2, 4),
    )
    assert code is not None
    assert (code.learners, code.rows_per_learner) == (6, 2)
    assert code.tolerance >= 3
