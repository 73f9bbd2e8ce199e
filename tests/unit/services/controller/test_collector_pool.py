"""Keyed collection: what collectors that are lost, or whose environment raises, leave behind."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.services.controller.builders import NUMERICS, make_config
from tests.waiting import WAIT_S

from fullrank.common.errors import EnvironmentFailed, InvalidContribution
from fullrank.common.types import Array
from fullrank.runs.event_log import EventLog
from fullrank.training.block_player import PlayedBlock, PlayTerms, Publication
from fullrank.training.blocks import FAILURES, BlockKey, BlockPlan
from fullrank_controller.collectors import stream
from fullrank_controller.collectors.blocks_in import Finished
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

KEY = BlockKey(0, 0)
PLAY = PlayTerms(publication=Publication(version=0, sections={}), env_steps=0)


def make_pool(roster: Roster, *, deadline_s: float) -> CollectorPool:
    """A pool of one block in each iteration."""
    learners = Roster()
    learners.numerics = NUMERICS
    return CollectorPool(
        BlockPlan(copies=1, size=1),
        replace(make_config().controller, deadline_s=deadline_s),
        roster=roster,
        learners=learners,
        progress=RunProgress(committed=0),
        event_log=EventLog(),
        term=1,
    )


def joined(roster: Roster) -> Member:
    member = roster.join("host", now=0.0)
    roster.ready(member, numerics=NUMERICS, stable=True)
    return member


def finished() -> Finished:
    one: Array = np.zeros((1, 1))
    played = PlayedBlock(one.astype(np.float32), one, np.zeros(1, bool), np.ones(1, np.int64))
    return Finished(KEY, played, playing_s=1.0, idle_s=0.0)


@pytest.mark.parametrize("answered_first", [True, False])
async def test_a_collector_that_is_lost_counts_until_its_block_is_played(
    answered_first: bool,
) -> None:
    """A block is overdue at once, so that two collectors play it; the second one is lost."""
    roster = Roster()
    pool = make_pool(roster, deadline_s=1e-9)
    first, second = joined(roster), joined(roster)
    playing = asyncio.create_task(pool.play(0, PLAY))
    while len(pool.scheduler.holders(KEY)) < 2:
        await asyncio.sleep(0)
        pool.assign()
    if answered_first:
        pool.answered(first, finished())
        pool.leave(second)
    else:
        pool.leave(second)
        assert pool.lost[KEY] == 1
        pool.answered(first, finished())
    assert not pool.lost
    assert pool.totals.lost == 1
    assert len(await playing) == 1


async def test_a_block_is_taken_of_the_collector_alone_that_was_assigned_it() -> None:
    roster = Roster()
    pool = make_pool(roster, deadline_s=WAIT_S)
    first, second = joined(roster), joined(roster)
    playing = asyncio.create_task(pool.play(0, PLAY))
    await asyncio.sleep(0)
    stream._check_assigned(pool, first, KEY)
    for member, key in ((second, KEY), (first, BlockKey(1, 0))):
        with pytest.raises(InvalidContribution, match="was not assigned to this collector"):
            stream._check_assigned(pool, member, key)
    pool.answered(first, finished())
    assert len(await playing) == 1


async def test_once_a_block_has_failed_too_often_none_is_assigned() -> None:
    """A collector that joins, and one whose block is overdue, get nothing of a run that ends."""
    roster = Roster()
    pool = make_pool(roster, deadline_s=1e-9)
    member = joined(roster)
    playing = asyncio.create_task(pool.play(0, PLAY))
    await asyncio.sleep(0)
    for _ in range(FAILURES):
        assert pool.scheduler.holders(KEY) == [member.learner]
        pool.failed(member, KEY, "it raises")
    with pytest.raises(EnvironmentFailed, match="it raises; block 0 failed 3 times"):
        await playing
    joined(roster)
    pool.assign()
    assert pool.scheduler.holders(KEY) == []
    assert pool.totals.assigned == FAILURES
