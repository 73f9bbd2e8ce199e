"""Joins and leaves between rounds and within one; undecodable is a policy."""

import asyncio

import pytest
from tests.unit.services.controller.builders import join, make_config, make_run, open_round

from fullrank.common.errors import NotDecodable
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.membership.assignment import Deal
from fullrank_controller.membership.membership import Membership
from fullrank_controller.run_state import Run

DEADLINE_S = 30.0


def make_membership(run: Run, *overrides: str) -> Membership:
    return Membership(make_config(*overrides), run)


async def settled(membership: Membership) -> Deal:
    return await asyncio.wait_for(membership.settle(deadline_s=DEADLINE_S), DEADLINE_S)


async def test_the_first_deal_is_epoch_0() -> None:
    run = make_run()
    join(run, 4)
    assert (await settled(make_membership(run))).epoch == 0


async def test_without_changes_the_deal_stays() -> None:
    run = make_run()
    join(run, 4)
    membership = make_membership(run)
    assert await settled(membership) is await settled(membership)


async def test_a_leave_within_the_tolerance_leaves_a_vacant_row() -> None:
    run = make_run()
    members = join(run, 4)
    membership = make_membership(run)
    before = await settled(membership)
    run.roster.leave(members[1])
    assert await settled(membership) is before
    assert before.vacant() == [1]


async def test_a_leave_below_the_least_tolerance_makes_a_new_code() -> None:
    run = make_run()
    members = join(run, 5)
    membership = make_membership(run, "controller.min_tolerance=1", "learners=5")
    before = await settled(membership)
    run.roster.leave(members[1])
    after = await settled(membership)
    assert (before.epoch, after.epoch) == (0, 1)
    assert (after.code.rows, after.code.tolerance) == (4, 1)


async def test_a_join_makes_a_new_code() -> None:
    run = make_run()
    join(run, 4)
    membership = make_membership(run)
    await settled(membership)
    join(run)
    after = await settled(membership)
    assert (after.epoch, after.code.rows) == (1, 5)


async def test_a_spare_takes_a_vacant_row_without_a_new_code() -> None:
    run = make_run()
    members = join(run, 4)
    membership = make_membership(run, "code.name=uncoded")
    before = await settled(membership)
    run.roster.leave(members[0])
    assert await settled(membership) is before
    assert before.holders[0] is members[3]


async def test_too_few_learners_stall_the_run_until_one_joins() -> None:
    run = make_run()
    join(run, 2)
    membership = make_membership(run)
    settling = asyncio.create_task(settled(membership))
    async with asyncio.timeout(DEADLINE_S):
        while run.state != pb.RUN_STATE_STALLED:
            await asyncio.sleep(0)
    assert run.message == "2 learners cannot hold a cyclic code of 3 units"
    join(run)
    assert (await settling).code.rows == 3
    assert (run.state, run.message) == (pb.RUN_STATE_RUNNING, "")


async def test_too_few_learners_fail_the_run_by_policy() -> None:
    run = make_run()
    join(run, 2)
    membership = make_membership(run, "controller.undecodable=fail")
    with pytest.raises(NotDecodable, match="start more learners"):
        await membership.settle(deadline_s=0.01)


async def test_the_run_waits_for_its_learners_and_no_longer() -> None:
    run = make_run()
    assembling = asyncio.create_task(make_membership(run).assemble())
    await asyncio.sleep(0)
    assert run.message == "waiting for 4 learners"
    join(run, 4)
    await asyncio.wait_for(assembling, DEADLINE_S)
    assert run.message == ""


async def test_while_the_run_waits_it_says_who_is_there_and_cannot_help() -> None:
    run = make_run()
    membership = make_membership(run)
    assembling = asyncio.create_task(membership.assemble())
    await asyncio.sleep(0)
    for _ in range(4):
        member = run.roster.join("host", now=0.0)
        run.roster.ready(member, fingerprint="torch", probe=(b"0",), stable=False)
    async with asyncio.timeout(DEADLINE_S):
        while run.message == "waiting for 4 learners":
            await asyncio.sleep(0)
    assert run.message == (
        "waiting for 4 learners; the bits of 4 depend on what they compute together"
    )
    join(run, 4)
    await asyncio.wait_for(assembling, DEADLINE_S)


async def test_the_run_begins_without_learners_that_are_late() -> None:
    run = make_run()
    join(run, 3)
    await make_membership(run, "controller.join_deadline_s=0.01").assemble()
    assert run.message == ""


async def test_a_code_that_cannot_tolerate_enough_is_not_made_anew_each_round() -> None:
    run = make_run()
    join(run, 3)
    membership = make_membership(run, "controller.min_tolerance=1", "learners=3")
    first = await settled(membership)
    assert await settled(membership) is first
    assert "0 losses can be borne, controller.min_tolerance asks for 1" in run.caveats["tolerance"]
    join(run)
    assert (await settled(membership)).code.tolerance == 1
    assert "tolerance" not in run.caveats


async def test_units_are_handed_out_to_those_who_have_nothing_to_do() -> None:
    run = make_run()
    members = join(run, 5)
    opened = open_round(run, name="uncoded")
    assert run.deal is not None
    opened.offer(learner=1, row=1)
    dealt = make_membership(run).hand_out(run.deal, {None: [0, 2]})
    assert dealt == {members[1]: {5: 0}, members[3]: {6: 2}}
    assert run.holds(1, 1)
    assert run.holds(1, 5)
    assert run.computes(3, 2)
    assert not run.computes(3, 0)
    assert make_membership(run).hand_out(run.deal, {None: [2]}) == {members[4]: {7: 2}}
    assert make_membership(run).hand_out(run.deal, {None: [2]}) == {}  # everybody is busy


async def test_who_is_doubted_is_not_asked_again() -> None:
    run = make_run()
    members = join(run, 3)
    opened = open_round(run, name="uncoded")
    assert run.deal is not None
    for learner in range(3):
        opened.offer(learner=learner, row=learner)
    dealt = make_membership(run).hand_out(
        run.deal, {each: opened.missing_without(each) for each in opened.received}
    )
    assert dealt == {members[1]: {3: 0, 5: 2}, members[0]: {4: 1}}


async def test_few_learners_get_several_units_each() -> None:
    run = make_run()
    members = join(run, 3)
    opened = open_round(run, name="uncoded")
    assert run.deal is not None
    for gone in members[1:]:
        run.roster.leave(gone)
    run.deal.drop_absent(run.roster.eligible)
    opened.offer(learner=0, row=0)
    missing = opened.missing(run.deal.holders)
    assert make_membership(run).hand_out(run.deal, {None: missing}) == {members[0]: {3: 1, 4: 2}}
    run.deal.forget_added()
    assert run.deal.rows_of(members[0]) == [0]
