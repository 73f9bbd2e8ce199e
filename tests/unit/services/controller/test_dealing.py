"""Rows go to the learners that are there; what cannot be held makes a smaller code."""

import numpy as np
import pytest
from tests.unit.services.controller.builders import UNITS, join, make_run

from fullrank.codes import Code, Tolerance
from fullrank.common.errors import CodeError
from fullrank.config import PluginSettings
from fullrank_controller.membership import assignment as dealing
from fullrank_controller.membership.assignment import Deal, deal, largest_code
from fullrank_controller.membership.roster import Member, Roster


def dealt(learners: int, *, name: str = "cyclic", **params: object) -> tuple[Deal, list[Member]]:
    members = join(make_run(), learners)
    made = deal(0, members, asked=PluginSettings(name=name, params=params), units=UNITS, seed=0)
    assert made is not None
    return made, members


@pytest.mark.parametrize(
    ("learners", "rows", "tolerance"), [(7, 7, 2), (5, 5, 2), (4, 4, 1), (3, 3, 0)]
)
async def test_a_cyclic_code_keeps_as_much_tolerance_as_the_learners_allow(
    learners: int, rows: int, tolerance: int
) -> None:
    made, members = dealt(learners, tolerance=2)
    assert (made.code.rows, made.code.tolerance) == (rows, tolerance)
    assert made.holders == dict(enumerate(members))
    assert made.spares == 0


async def test_the_largest_code_that_exists_is_dealt_and_the_rest_are_spares() -> None:
    existing = {rows for rows in range(4, 9) if largest_code_rows(rows) == rows}
    assert existing < set(range(4, 9)), "ldpc exists for some sizes only"
    learners = next(
        rows for rows in range(8, 3, -1) if rows not in existing and rows > min(existing)
    )
    code = largest_code("ldpc", {}, learners=learners, units=4, seed=0)
    assert code is not None
    assert code.rows == max(rows for rows in existing if rows < learners)


def largest_code_rows(learners: int) -> int:
    code = largest_code("ldpc", {}, learners=learners, units=4, seed=0)
    return code.rows if code else 0


async def test_fewer_learners_than_units_hold_no_code() -> None:
    assert (
        deal(0, join(make_run(), 2), asked=PluginSettings(name="mds"), units=UNITS, seed=0) is None
    )
    assert deal(0, [], asked=PluginSettings(name="mds"), units=UNITS, seed=0) is None


async def test_rows_that_combine_nothing_are_not_dealt() -> None:
    made, members = dealt(5, name="uncoded")
    assert made.holders == dict(enumerate(members[:3]))
    assert made.spares == 2
    assert made.vacant() == []
    assert made.remaining_tolerance() == 0


async def test_a_vacant_row_costs_tolerance_until_a_spare_takes_it() -> None:
    made, members = dealt(5, tolerance=1)
    left = [member for member in members if member.learner != 2]
    made.drop_absent(left)
    assert made.vacant() == [2]
    assert made.remaining_tolerance() == 0
    [newcomer] = join(make_run())
    assert made.fill([*left, newcomer])
    assert newcomer in made.holders.values()
    assert (
        made.placement.changed == made.code.load[2]
    )  # nobody else computes what it did not before
    assert made.remaining_tolerance() == 1


async def test_a_code_is_not_for_those_who_could_hold_more_of_another() -> None:
    made, members = dealt(4, tolerance=1)
    assert made.fill(members)
    assert not made.fill([*members, *join(make_run())])  # a newcomer
    spared, members = dealt(6, name="uncoded")
    spared.drop_absent(members[2:])
    assert spared.fill(members[2:])
    assert not spared.vacant()


async def test_nobody_gets_a_second_row() -> None:
    made, members = dealt(4, tolerance=1)
    made.drop_absent(members[1:])
    assert made.fill(members[1:])
    assert made.vacant() == [0]


async def test_rows_that_are_left_may_still_determine_everything() -> None:
    made, members = dealt(4, tolerance=1)
    made.drop_absent(members[1:])
    assert made.decodable
    made.drop_absent(members[2:])
    assert not made.decodable


async def test_holders_of_a_unit_are_in_different_domains() -> None:
    roster = Roster()
    members = [roster.join("pod", now=0.0, domain=("zone", f"node{j // 2}")) for j in range(6)]
    asked = PluginSettings(name="cyclic", params={"tolerance": 2})
    made = deal(0, members, asked=asked, units=UNITS, seed=0)
    assert made is not None
    for unit in range(UNITS):
        nodes = [made.holders[row].domain for row in range(6) if made.code.matrix[row, unit]]
        assert len(set(nodes)) == len(nodes) == 3


async def test_a_new_deal_leaves_units_where_they_are() -> None:
    made, members = dealt(8, tolerance=2)
    asked = PluginSettings(name="cyclic", params={"tolerance": 2})
    left = [member for member in members if member.learner != 3]
    fresh = deal(1, left, asked=asked, units=UNITS, seed=0, before=made)
    assert fresh is not None
    moved = fresh.held(left) & ~made.held(left)
    assert fresh.placement.changed == moved.sum() <= 2


async def test_a_code_that_does_not_bear_what_it_states_is_not_dealt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matrix = np.eye(4, UNITS)
    false = Code(name="false", matrix=matrix, known_tolerance=Tolerance(1, "closed form"))
    monkeypatch.setattr(dealing, "make_code", lambda *_, **__: false)
    with pytest.raises(CodeError, match="does not bear the 1 losses"):
        dealt(4)
