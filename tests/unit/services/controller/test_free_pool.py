"""Collectors that play freely: what they are ordered, and what a failure of theirs costs."""

import asyncio
from typing import Any

import pytest
from tests.unit.services.controller.free_blocks import (
    AGENTS,
    KEY,
    joined,
    make_pool,
    played,
    settle,
    terms,
)

from fullrank.common.errors import InvalidContribution
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.membership.member import Member


def ordered(pool: FreePool, member: Member) -> BlockKey | None:
    return pool.eligible[member].block


async def test_a_block_is_played_with_the_newest_parameters_that_are_young_enough() -> None:
    pool = make_pool(block=1)
    member = joined(pool)
    playing = asyncio.create_task(pool.play(KEY))
    await settle()
    assert ordered(pool, member) is None  # nothing is published
    pool.publish(terms(4), oldest=5)
    assert ordered(pool, member) is None
    pool.publish(terms(5), oldest=5)
    assert ordered(pool, member) == KEY
    pool.take(member, played(KEY, 3))
    report = await playing
    assert (report.version, report.rows, report.member) == (5, 3, member)
    pool.pause(oldest=6)
    later = asyncio.create_task(pool.play(BlockKey(3, 1)))
    await settle()
    assert ordered(pool, member) is None
    later.cancel()


async def test_the_block_of_a_collector_that_is_lost_or_fails_is_open_again() -> None:
    pool = make_pool(block=1)
    lost, bad, good = joined(pool), joined(pool), joined(pool)
    pool.publish(terms(0), oldest=0)
    playing = asyncio.create_task(pool.play(KEY))
    await settle()
    assert ordered(pool, lost) == KEY
    pool.leave(lost)
    assert ordered(pool, bad) == KEY
    failed = pb.Failed(iteration=KEY.iteration, block=KEY.block, reason="it\nraises")
    pool.take(bad, pb.CollectorMessage(failed=failed))
    assert list(pool.progress.caveats) == ["collector 1 on host: it raises"]
    assert (ordered(pool, bad), ordered(pool, good)) == (KEY, None)  # it has another try
    pool.leave(bad)
    pool.take(good, played(KEY, 1))
    await playing
    totals = pool.totals
    assert (totals.assigned, totals.played, totals.lost, totals.failed) == (4, 1, 2, 1)


async def test_a_block_is_taken_of_the_collector_alone_that_was_assigned_it() -> None:
    pool = make_pool(block=1)
    first, second = joined(pool), joined(pool)
    pool.publish(terms(0), oldest=0)
    playing = asyncio.create_task(pool.play(KEY))
    await settle()
    for member, key in ((second, KEY), (first, BlockKey(KEY.iteration, 1))):
        with pytest.raises(InvalidContribution, match="was not assigned to this collector"):
            pool.take(member, played(key, 1))
    pool.take(first, played(KEY, 1))
    await playing


async def test_a_report_on_a_block_that_the_run_has_given_up_is_dropped() -> None:
    pool = make_pool(block=1)
    first, second = joined(pool), joined(pool)
    pool.publish(terms(0), oldest=0)
    playing = [asyncio.create_task(pool.play(BlockKey(KEY.iteration, block))) for block in (0, 1)]
    await settle()
    for block in playing:
        block.cancel()
    pool.take(first, played(KEY, 1))
    await settle()
    pool.take(second, played(BlockKey(KEY.iteration, 1), 1))
    assert pool.totals.played == 2
    assert not pool.waiting


WRONG: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": [0]},
    "won": {"won": []},
    "earned": {"earned": [0.0] * (AGENTS - 1)},
    "earned has an entry": {"earned": [float("nan")] * AGENTS},
    "rows is 4, expected 3": {"rows": 4},
    "digest": {"digest": b""},
}


@pytest.mark.parametrize("named", WRONG)
async def test_a_report_with_a_wrong_field_is_refused_whole(named: str) -> None:
    pool = make_pool(block=1)
    member = joined(pool)
    pool.publish(terms(0), oldest=0)
    playing = asyncio.create_task(pool.play(KEY))
    await settle()
    with pytest.raises(InvalidContribution, match=rf"played\.{named}"):
        pool.take(member, played(KEY, 3, **WRONG[named]))
    assert not pool.totals.played
    playing.cancel()


async def test_one_record_tells_of_a_collector_whatever_it_plays() -> None:
    pool = make_pool(block=1)
    member = joined(pool)
    pool.publish(terms(0), oldest=0)
    playing = asyncio.create_task(pool.play(KEY))
    await settle()
    pool.take(member, played(KEY, 3, playing_s=2.0, idle_s=2.0))
    pool.refuse(await playing)
    (status,) = pool.statuses(version=4, now=0.0)
    assert (status.blocks, status.stale, status.lag) == (1, 1, 4)
    assert (status.block_s, status.idle, status.playing) == (2.0, 0.5, False)
    assert pool.blocks().played == 1
