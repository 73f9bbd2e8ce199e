"""Keyed collection: what collectors that are lost, or whose environment raises, leave behind."""

import asyncio
from dataclasses import replace

import pytest
from tests.unit.services.controller.builders import NUMERICS, make_config, make_run
from tests.waiting import WAIT_S

from fullrank.common.errors import EnvironmentFailed, InvalidContribution
from fullrank.runs.events import EventLog
from fullrank.training.block_player import PlayTerms, Publication
from fullrank.training.blocks import FAILURES, BlockKey, BlockPlan
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.keyed_pool import KeyedPool
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

KEY = BlockKey(0, 0)
PLAY = PlayTerms(publication=Publication(version=0, sections={}), env_steps=0)


def make_pool(roster: Roster, *, deadline_s: float) -> KeyedPool:
    """A pool of one block in each iteration."""
    learners = Roster()
    learners.numerics = NUMERICS
    return KeyedPool(
        plan=BlockPlan(copies=1, size=1),
        settings=replace(make_config().controller, deadline_s=deadline_s),
        roster=roster,
        learners=learners,
        progress=RunProgress(committed=0),
        event_log=EventLog(),
        identity=make_run().identity,
        agents=1,
    )


def joined(roster: Roster, *, process: bytes = b"one") -> Member:
    member = roster.join("host", now=0.0, process=process)
    roster.ready(member, numerics=NUMERICS, stable=True)
    return member


def take(pool: KeyedPool, member: Member) -> None:
    """Take a report on the block."""
    played = pb.Played(
        rows=1, earned=[0.0], won=[False], lengths=[1], digest=bytes(16), staged=True
    )
    pool.take(member, pb.CollectorMessage(played=played))


@pytest.mark.parametrize("answered_first", [True, False])
async def test_a_collector_that_is_lost_counts_until_its_block_is_played(
    answered_first: bool,
) -> None:
    """A block is overdue at once, so that two collectors play it; the second one is lost."""
    roster = Roster()
    pool = make_pool(roster, deadline_s=1e-9)
    first, second = joined(roster), joined(roster)
    playing = asyncio.create_task(pool.play(0, [KEY], PLAY))
    while len(pool.scheduler.holders(KEY)) < 2:
        await asyncio.sleep(0)
        pool.assign()
    if answered_first:
        take(pool, first)
        pool.leave(second)
    else:
        pool.leave(second)
        assert pool.lost[KEY] == 1
        take(pool, first)
    assert not pool.lost
    assert pool.totals.lost == 1
    assert len(await playing) == 1


async def test_a_block_is_taken_of_the_collector_alone_that_was_assigned_it() -> None:
    roster = Roster()
    pool = make_pool(roster, deadline_s=WAIT_S)
    first, second = joined(roster), joined(roster)
    playing = asyncio.create_task(pool.play(0, [KEY], PLAY))
    await asyncio.sleep(0)
    pool.admit(first)
    pool.admit(second)
    for member, key in ((second, KEY), (first, BlockKey(1, 0))):
        failed = pb.Failed(iteration=key.iteration, block=key.block, reason="it raises")
        with pytest.raises(InvalidContribution, match="was not assigned to this collector"):
            pool.take(member, pb.CollectorMessage(failed=failed))
    take(pool, first)
    assert len(await playing) == 1


async def test_once_a_block_has_failed_too_often_none_is_assigned() -> None:
    """A collector that joins, and one whose block is overdue, get nothing of a run that ends."""
    roster = Roster()
    pool = make_pool(roster, deadline_s=1e-9)
    member = joined(roster)
    playing = asyncio.create_task(pool.play(0, [KEY], PLAY))
    await asyncio.sleep(0)
    for _ in range(FAILURES):
        assert pool.scheduler.holders(KEY) == [member.learner]
        failed = pb.Failed(iteration=KEY.iteration, block=KEY.block, reason="it raises")
        pool.take(member, pb.CollectorMessage(failed=failed))
    with pytest.raises(EnvironmentFailed, match="it raises; block 0 failed 3 times"):
        await playing
    joined(roster)
    pool.assign()
    assert pool.scheduler.holders(KEY) == []
    assert pool.totals.assigned == FAILURES


async def test_a_convicted_collector_plays_no_block_again_and_is_not_heard() -> None:
    """It plays a block at that time, and dials again later."""
    roster = Roster(role="collector")
    pool = make_pool(roster, deadline_s=WAIT_S)
    liar = joined(roster)
    playing = asyncio.create_task(pool.play(0, [KEY], PLAY))
    await asyncio.sleep(0)
    take(pool, liar)
    (report,) = await playing
    again = asyncio.create_task(pool.play(0, [KEY], PLAY))
    await asyncio.sleep(0)
    assert pool.scheduler.holders(KEY) == [liar.learner]
    pool.convict(report)
    take(pool, liar)
    assert not again.done()
    pool.leave(liar)
    barred, honest = joined(roster), joined(roster, process=b"another")
    pool.admit(barred)
    assert pool.scheduler.holders(KEY) == [honest.learner]
    assert "iteration 0, copies 0 to 0, played again" in barred.quarantined
    assert str(barred.party).startswith("collector ")
    take(pool, honest)
    (report,) = await again
    assert report.member is honest
    assert not roster.verdicts.take_quarantined()


async def test_a_collector_that_staged_no_block_of_its_report_is_expelled() -> None:
    roster = Roster()
    pool = make_pool(roster, deadline_s=WAIT_S)
    liar, honest = joined(roster), joined(roster)
    playing = asyncio.create_task(pool.play(0, [KEY], PLAY))
    await asyncio.sleep(0)
    take(pool, liar)
    reports = await playing
    pool.distrust([each._replace(is_staged=False) for each in reports])
    assert not liar.expelled.done()
    pool.distrust(reports)
    with pytest.raises(InvalidContribution, match="no rows of its digest are staged for block 0"):
        await liar.expelled
    assert not honest.expelled.done()
    again = asyncio.create_task(pool.play(0, [KEY], PLAY))
    await asyncio.sleep(0)
    pool.leave(liar)
    assert pool.scheduler.holders(KEY) == [honest.learner]
    take(pool, honest)
    assert len(await again) == 1


async def test_a_block_that_the_run_has_given_up_is_not_ordered() -> None:
    roster = Roster()
    pool = make_pool(roster, deadline_s=WAIT_S)
    playing = asyncio.create_task(pool.play(0, [KEY], PLAY))
    await asyncio.sleep(0)
    playing.cancel()
    await asyncio.wait({playing})
    member = joined(roster)
    pool.assign()
    assert pool.totals.assigned == 0
    assert pool.eligible[member].block is None
