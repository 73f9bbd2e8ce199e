"""Learners join and leave between rounds and within one; a policy covers undecodable rounds."""

import asyncio

import pytest
from tests.unit.services.controller.builders import NUMERICS, join, make_run, open_round
from tests.waiting import WAIT_S

from fullrank.common.errors import NotDecodable
from fullrank.run.assignment import RowAssignment
from fullrank.run.round_orders import AddRows, Begun, MembershipChanged
from fullrank.training.block_player import PlayTerms, Publication
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.keyed_pool import KeyedPool
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.membership import Membership


async def settled(membership: Membership) -> RowAssignment[Member]:
    return await asyncio.wait_for(membership.settle(deadline_s=WAIT_S), WAIT_S)


async def test_without_changes_the_assignment_stays() -> None:
    run = make_run()
    join(run, 4)
    membership = run.membership
    assert await settled(membership) is await settled(membership)


async def test_a_leave_within_the_tolerance_leaves_a_vacant_row() -> None:
    run = make_run()
    members = join(run, 4)
    membership = run.membership
    before = await settled(membership)
    run.roster.leave(members[1])
    assert await settled(membership) is before
    assert before.vacant() == [1]


async def test_leaves_beyond_the_tolerance_make_a_new_code() -> None:
    run = make_run("learners=5")
    members = join(run, 5)
    membership = run.membership
    before = await settled(membership)
    for member in members[1 : 2 + before.code.tolerance]:
        run.roster.leave(member)
    after = await settled(membership)
    assert (before.epoch, after.epoch) == (0, 1)
    assert after.code.learners == 4 - before.code.tolerance


async def test_a_join_makes_a_new_code() -> None:
    run = make_run()
    join(run, 4)
    membership = run.membership
    await settled(membership)
    join(run)
    after = await settled(membership)
    assert (after.epoch, after.code.rows) == (1, 5)


async def test_a_spare_takes_a_vacant_row_without_a_new_code() -> None:
    run = make_run("code.name=uncoded")
    members = join(run, 4)
    membership = run.membership
    before = await settled(membership)
    run.roster.leave(members[0])
    assert await settled(membership) is before
    assert before.holders[0] is members[3]


async def test_the_successor_of_an_index_holds_the_row_that_it_was_assigned() -> None:
    run = make_run("code.name=uncoded", "learners=3")
    members = join(run, 3)
    assignment = await settled(run.membership)
    run.roster.leave(members[1])
    [successor] = join(run)
    assert successor.learner == members[1].learner
    assert await settled(run.membership) is assignment
    assert assignment.rows_of(successor) == [1]
    assert not assignment.rows_of(members[1])


async def test_a_drained_learner_finishes_its_row_and_holds_none_in_the_next_round() -> None:
    run = make_run()
    drained, leaver, *_ = join(run, 4)
    opened = open_round(run, name="uncoded")
    opened.step(Begun())
    run.roster.drain(drained.learner)
    run.roster.leave(leaver)
    orders = opened.step(MembershipChanged())
    [(helper, units)] = [
        item for order in orders if isinstance(order, AddRows) for item in order.units.items()
    ]
    assert helper is not drained
    assert list(units.values()) == [leaver.learner]
    assert opened.holder_of(0, drained.learner) is drained
    run.reception.close()
    assert not (await settled(run.membership)).rows_of(drained)


async def test_a_run_that_has_lost_all_its_learners_does_not_go_on() -> None:
    run = make_run("controller.undecodable=fail")
    members = join(run, 4)
    await settled(run.membership)
    for member in members:
        run.roster.leave(member)
    with pytest.raises(NotDecodable, match="0 learners cannot hold"):
        await run.membership.settle(deadline_s=0.01)


async def test_without_learners_the_run_stalls_until_one_joins() -> None:
    run = make_run()
    membership = run.membership
    settling = asyncio.create_task(settled(membership))
    async with asyncio.timeout(WAIT_S):
        while run.progress.state != pb.RUN_STATE_STALLED:
            await asyncio.sleep(0)
    assert run.progress.message == "0 learners cannot hold a cyclic code of 3 units"
    join(run)
    assert (await settling).code.rows_per_learner == 3
    assert (run.progress.state, run.progress.message) == (pb.RUN_STATE_RUNNING, "")


async def test_the_run_waits_for_its_learners_and_no_longer() -> None:
    run = make_run()
    assembling = asyncio.create_task(run.membership.assemble(resumed=False))
    await asyncio.sleep(0)
    assert run.progress.message == "waiting for 4 learners"
    join(run, 4)
    await asyncio.wait_for(assembling, WAIT_S)
    assert run.progress.message == ""


async def test_a_resumed_run_begins_with_the_first_learners_that_can_decode() -> None:
    run = make_run("code.name=uncoded", "learners=3")
    membership = run.membership
    assembling = asyncio.create_task(membership.assemble(resumed=True))
    await asyncio.sleep(0)
    assert not assembling.done()
    join(run)
    await asyncio.wait_for(assembling, WAIT_S)
    first = await settled(membership)
    assert first.decodable
    join(run, 2)
    assert len(set((await settled(membership)).holders.values())) == 3


async def test_while_the_run_waits_it_says_who_is_there_and_cannot_help() -> None:
    run = make_run()
    membership = run.membership
    assembling = asyncio.create_task(membership.assemble(resumed=False))
    await asyncio.sleep(0)
    for _ in range(4):
        member = run.roster.join("host", now=0.0)
        run.roster.ready(member, numerics=NUMERICS, stable=False)
    async with asyncio.timeout(WAIT_S):
        while run.progress.message == "waiting for 4 learners":
            await asyncio.sleep(0)
    assert run.progress.message == (
        "waiting for 4 learners; the bits of 4 depend on what they compute together"
    )
    join(run, 4)
    await asyncio.wait_for(assembling, WAIT_S)


async def test_the_run_begins_without_learners_that_are_late() -> None:
    run = make_run("controller.deadline_s=0.005")
    join(run, 3)
    await run.membership.assemble(resumed=False)
    assert run.progress.message == ""


async def test_collectors_play_once_the_first_learners_fix_the_numerics() -> None:
    run = make_run("collectors.count=1", "collect.mode=keyed", "collect.block=1")
    run.roster.numerics, pool = None, run.collectors
    assert isinstance(pool, KeyedPool)
    key, play = (
        BlockKey(0, 0),
        PlayTerms(publication=Publication(version=0, sections={}), env_steps=0),
    )
    playing = asyncio.create_task(pool.play(0, [key], play))
    collector = pool.roster.join("host", now=0.0, process=b"one")
    pool.roster.ready(collector, numerics=NUMERICS, stable=True)
    await asyncio.sleep(0)
    assert not pool.scheduler.holders(key)
    join(run, 4)
    await settled(run.membership)
    assert list(pool.scheduler.holders(key)) == [collector.learner]
    playing.cancel()
