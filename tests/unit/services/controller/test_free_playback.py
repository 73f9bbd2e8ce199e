"""Blocks of free collection: accepted once each, in turn, whatever happens to replay."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.services.controller.free_blocks import (
    TERM,
    joined,
    make_pool,
    played,
    settle,
    terms,
)
from tests.waiting import WAIT_S

from fullrank.common.errors import StorageFailed
from fullrank.net.replay_client import ReplayClient, Unstaged
from fullrank.replay.pace import DrawWindow, Pace, Reach
from fullrank.replay.staging import Grant
from fullrank.training.block_collection import FreeCollection
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.training.episodes import Outcomes
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.collectors.head_store import HeadStore
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds import free_playback
from fullrank_controller.rounds.block_audit import BlockAudit
from fullrank_controller.rounds.free_playback import FreePlayback

PACE = Pace(episodes_per_update=2, window=2, warmup=2, max_lag=2)
STRICT = Pace(episodes_per_update=2, window=2, warmup=2, max_lag=0)


@dataclass
class Table:
    """Stands for replay; ``says`` are its next answers."""

    says: list[Unstaged | Exception] = field(default_factory=list)
    granted: list[int] = field(default_factory=list)
    accepted: list[tuple[int, int]] = field(default_factory=list)
    """Position and number of each accepted block."""
    truncated: list[int] = field(default_factory=list)
    permits: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1000))
    """Acceptances that are answered without a wait."""

    async def grant(self, iteration: int, blocks: range, grant: Grant) -> None:
        """Take a grant."""
        assert iteration == TERM
        self.granted += blocks

    async def accept(
        self,
        iteration: int,
        first_position: int,
        digests: Sequence[bytes],
        *,
        rows: int,
        first: int,
    ) -> Unstaged | None:
        """Accept a block, unless another answer comes first."""
        if self.says:
            said = self.says.pop(0)
            if isinstance(said, Exception):
                raise said
            return said
        await self.permits.acquire()
        self.accepted.append((first_position, first))
        return None

    async def truncate(self, head: int) -> None:
        """Take note of the new end."""
        self.truncated.append(head)


class Collection:
    """Stands for the collection: notes what each iteration draws."""

    episodes = 0

    def episodes_before(self, iteration: int) -> int:
        """Return what is known."""
        return self.episodes

    def __init__(self) -> None:
        self.drawn_by: list[tuple[Reach, Outcomes]] = []

    def begin(self, iteration: int) -> PlayTerms:
        """Return the parameters of an iteration."""
        return terms(iteration)

    def drawn(self, iteration: int, reach: Reach, written: Sequence[Outcomes]) -> Any:
        """Note a draw."""
        self.drawn_by.append((reach, Outcomes.joined([Outcomes.none(2), *written])))


class Audit:
    """Stands for the audit of blocks: refutes those with these numbers, once each."""

    def __init__(self) -> None:
        self.false = set[int]()

    async def refuted(self, reports: Sequence[BlockReport]) -> list[BlockKey]:
        """Refute what is false."""
        keys = [report.key for report in reports if report.key.block in self.false]
        self.false -= {key.block for key in keys}
        return keys

    async def end(self) -> None:
        """Do nothing."""


class Played:
    """A run whose one collector plays blocks of one episode of three steps."""

    def __init__(
        self, *, pace: Pace = PACE, block: int = 1, heads: HeadStore | None = None
    ) -> None:
        self.table, self.collection = Table(), Collection()
        self.pool = make_pool(heads, block=block)
        self.audit = Audit()
        self.playback = FreePlayback(
            cast(FreeCollection, self.collection),
            cast(ReplayClient, self.table),
            self.pool,
            Grant(most_rows=100, episodes=None),
            audit=cast(BlockAudit, self.audit),
            window=lambda iteration, head, episodes: DrawWindow(
                pace, capacity=1000, newest=1000, following=iteration, head=head, episodes=episodes
            ),
        )
        self.member: Member = joined(self.pool)

    async def plays(self, *lengths: int, member: Member | None = None, **fields: Any) -> BlockKey:
        """Let the collector, or another one, play the block that it was ordered."""
        await settle()
        member = member or self.member
        key = self.pool.eligible[member].block
        assert key is not None
        self.pool.take(member, played(key, *(lengths or (3,)), **fields))
        await settle()
        return key

    def commit(self, iterations: int) -> None:
        """Make iterations durable."""
        self.pool.progress.committed = iterations
        self.playback.committed(iterations)


async def test_blocks_are_accepted_as_they_come_and_wait_beyond_the_window() -> None:
    run = Played()
    drawing = asyncio.create_task(run.playback.store(0, 0))
    assert [await run.plays() for _ in range(5)] == [BlockKey(TERM, block) for block in range(5)]
    await asyncio.wait_for(drawing, WAIT_S)
    reach, outcomes = run.collection.drawn_by[0]
    assert [block.block for block in reach.blocks] == [0, 1]
    assert (reach.head, reach.episodes, len(outcomes.lengths)) == (6, 2, 2)
    assert run.table.accepted == [(0, 0), (3, 1), (6, 2), (9, 3)]
    await run.plays()  # with the fifth one, which waits, as many as are open
    assert run.pool.eligible[run.member].block is None
    drawing = asyncio.create_task(run.playback.store(1, 6))
    await asyncio.wait_for(drawing, WAIT_S)
    await settle()
    assert run.table.accepted[4:] == [(12, 4), (15, 5)]
    await run.playback.end()


async def test_a_block_whose_parameters_are_too_old_is_dropped_and_played_with_newer_ones() -> None:
    run = Played(pace=STRICT)
    slow = joined(run.pool)
    drawing = asyncio.create_task(run.playback.store(0, 0))
    for _ in range(2):
        await run.plays()
    await asyncio.wait_for(drawing, WAIT_S)
    stale = await run.plays(member=slow)  # iteration 1 is the first that could draw it
    await run.plays()
    assert {work.block for work in run.pool.eligible.values()} == {None}
    drawing = asyncio.create_task(run.playback.store(1, 6))
    run.commit(1)
    assert await run.plays() == stale
    assert run.pool.totals.stale == 2
    assert run.table.accepted[-1] == (6, stale.block)
    drawing.cancel()
    await run.playback.end()


async def test_no_iteration_draws_while_a_block_that_it_makes_older_is_being_accepted() -> None:
    run = Played(pace=Pace(episodes_per_update=1, window=5, warmup=1, max_lag=0))
    run.table.permits = asyncio.Semaphore(1)
    other = joined(run.pool)
    drawing = asyncio.create_task(run.playback.store(0, 0))
    await settle()
    for member in (run.member, other):
        run.pool.take(member, played(run.pool.eligible[member].block or BlockKey(0, 0), 3))
    await settle()
    assert run.table.accepted == [(0, 0)]
    assert not drawing.done()
    run.table.permits.release()
    await asyncio.wait_for(drawing, WAIT_S)
    assert [block.block for block in run.collection.drawn_by[0][0].blocks] == [0, 1]
    await run.playback.end()


async def test_an_iteration_that_waits_is_cancelled_while_replay_is_away() -> None:
    run = Played()
    run.table.permits = asyncio.Semaphore(0)  # as long as replay is away, an acceptance waits
    drawing = asyncio.create_task(run.playback.store(0, 0))
    await run.plays()
    drawing.cancel()
    assert await asyncio.wait({drawing}, timeout=WAIT_S) == ({drawing}, set())
    assert drawing.cancelled()
    await run.playback.end()


RESTARTS = {
    "nothing of it was stored": (Unstaged([0], granted=False, head=0), [], [(0, 1), (3, 0)]),
    "a part of it was stored": (Unstaged([0], granted=False, head=2), [0], [(0, 1), (3, 0)]),
    "all of it was stored": (Unstaged([0], granted=False, head=3), [], [(3, 1), (6, 2)]),
}


@pytest.mark.parametrize("state", RESTARTS)
async def test_a_block_is_stored_once_when_replay_ends_before_it_answers(state: str) -> None:
    answer, truncated, later = RESTARTS[state]
    run = Played()
    run.table.says.append(answer)
    drawing = asyncio.create_task(run.playback.store(0, 0))
    for _ in range(3):
        await run.plays()
    assert run.table.truncated == truncated
    assert run.table.accepted == later
    assert not run.member.expelled.done()
    drawing.cancel()
    await run.playback.end()


async def test_a_block_of_which_nothing_is_handed_over_ends_its_grant_and_takes_no_position(
    tmp_path: Path,
) -> None:
    run = Played(heads=HeadStore(tmp_path, size=1, confirm=lambda: None))
    drawing = asyncio.create_task(run.playback.store(0, 0))
    for handed_over in ([0], [], [0]):
        report = pb.ContainerReport(handed_over=handed_over)
        await run.plays(rows=3 * len(handed_over), container=report)
    assert run.table.accepted == [(0, 0), (3, 1), (3, 2)]
    await asyncio.wait_for(drawing, WAIT_S)
    reach, outcomes = run.collection.drawn_by[0]
    assert [block.block for block in reach.blocks] == [0, 2]
    assert len(outcomes.lengths) == 3
    await run.playback.end()


async def test_a_collector_that_staged_no_block_of_its_report_is_expelled() -> None:
    run = Played()
    run.table.says.append(Unstaged([0], granted=True, head=0))
    drawing = asyncio.create_task(run.playback.store(0, 0))
    await run.plays()
    assert run.member.expelled.done()
    assert run.table.granted == [0, 1, 0]
    run.member.expelled.exception()
    drawing.cancel()
    await run.playback.end()


async def test_a_block_that_an_audit_refutes_is_not_accepted_and_is_played_again() -> None:
    run = Played()
    run.audit.false.add(0)
    drawing = asyncio.create_task(run.playback.store(0, 0))
    assert [(await run.plays()).block for _ in range(3)] == [0, 1, 0]
    assert run.table.accepted == [(0, 1), (3, 0)]
    await asyncio.wait_for(drawing, WAIT_S)
    await run.playback.end()


async def test_a_block_that_waits_while_its_collector_is_convicted_is_played_by_another() -> None:
    run = Played()
    drawing = asyncio.create_task(run.playback.store(0, 0))
    for _ in range(6):
        await run.plays()
    await asyncio.wait_for(drawing, WAIT_S)
    assert [block for _, block in run.table.accepted] == [0, 1, 2, 3]  # others wait for the pace
    false = BlockReport(BlockKey(TERM, 5), 3, b"", Outcomes.none(2), member=run.member)
    run.pool.convict(false)
    other = joined(run.pool, process=b"other")
    await asyncio.wait_for(run.playback.store(1, 6), WAIT_S)
    await settle()
    assert len(run.table.accepted) == 4
    assert [(await run.plays(member=other)).block for _ in range(2)] == [4, 5]
    assert [block for _, block in run.table.accepted] == [0, 1, 2, 3, 4, 5]
    await run.playback.end()


async def test_an_error_of_the_table_ends_the_run() -> None:
    run = Played()
    run.table.says.append(StorageFailed("the disk is full"))
    drawing = asyncio.create_task(run.playback.store(0, 0))
    await run.plays()
    with pytest.raises(StorageFailed, match="the disk is full"):
        await asyncio.wait_for(drawing, WAIT_S)
    await run.playback.end()


async def test_a_resumed_run_goes_on_with_the_episodes_before() -> None:
    run = Played()
    run.collection.episodes = 6
    await asyncio.wait_for(run.playback.store(2, 18), WAIT_S)
    assert run.collection.drawn_by[0][0].episodes == 6
    await run.playback.end()


async def test_while_no_iteration_begins_the_newest_reports_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(free_playback, "KEPT_EPISODES", 4)
    pace = Pace(episodes_per_update=0, window=1, warmup=12, max_lag=0)
    run = Played(pace=pace, block=2)
    drawing = asyncio.create_task(run.playback.store(0, 0))
    for length in range(1, 7):
        await run.plays(length, length)
    await asyncio.wait_for(drawing, WAIT_S)
    assert run.collection.drawn_by[0][1].lengths.tolist() == [5, 5, 6, 6]
    await run.playback.end()
