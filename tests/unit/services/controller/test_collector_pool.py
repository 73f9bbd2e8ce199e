"""Keyed collection: what is remembered of collectors that are gone ends with the block."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.services.controller.builders import NUMERICS, make_config

from fullrank.common.types import Array
from fullrank.runs.event_log import EventLog
from fullrank.training.block_player import PlayedBlock, PlayTerms, Publication
from fullrank.training.blocks import BlockKey, BlockPlan
from fullrank_controller.collectors.blocks_in import Finished
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

KEY = BlockKey(0, 0)


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
    settings, learners, roster = make_config().controller, Roster(), Roster()
    learners.numerics = NUMERICS
    pool = CollectorPool(
        BlockPlan(copies=1, size=1),
        replace(settings, deadline_s=1e-9),
        roster=roster,
        learners=learners,
        progress=RunProgress(committed=0),
        event_log=EventLog(),
        term=1,
    )
    first, second = joined(roster), joined(roster)
    play = PlayTerms(publication=Publication(version=0, sections={}), env_steps=0)
    playing = asyncio.create_task(pool.play(0, play))
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
