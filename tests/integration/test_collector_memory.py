"""With learners stopped and collectors flooding, memory keeps its stated bounds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy as np
import pytest
from tests.fakes import Fault
from tests.integration.cluster import Cluster
from tests.integration.collecting import (
    NO_ACTIONS,
    VALUES,
    FakeCollector,
    alone,
    no_block,
    ready_of,
    settings,
)
from tests.integration.test_free import FREE, ITERATIONS, held, trained, verified
from tests.waiting import WAIT_S, eventually

from fullrank import __version__
from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray, RunTerm
from fullrank.host.run_directory import resolve
from fullrank.net.channel import open_channel
from fullrank.net.messages import run_term_message
from fullrank.net.replay_streams import EpisodeWriter, episode_requests
from fullrank.replay.episodes import NO_ACTION
from fullrank.replay.fence import FILE as FENCE
from fullrank.replay.fence import read_fence
from fullrank.replay.table import TABLE
from fullrank.runs.snapshot import REPLAY
from fullrank.training.block_player import BlockPlayer, PlayedBlock, PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1 import replay_pb2
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub
from fullrank_controller.collectors import free_pool
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_replay import inbox as inbox_module
from fullrank_replay.inbox import Inbox, InboxRoom

pytestmark = pytest.mark.integration

Made = TypeVar("Made")

ONE_LEARNER = (*VALUES, "learners=1")
BLOCKS, BLOCK = 3, 2
"""Blocks of an iteration, and copies of a block."""


def made(monkeypatch: pytest.MonkeyPatch, kind: type[Made]) -> list[Made]:
    """All objects of a type that are made from now on."""
    found: list[Made] = []
    init = kind.__init__

    def noting(self: Made, *words: Any, **named: Any) -> None:
        init(self, *words, **named)
        found.append(self)

    monkeypatch.setattr(kind, "__init__", noting)
    return found


async def test_with_learners_stopped_collectors_play_the_lag_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lag, pools = 2, made(monkeypatch, CollectorPool)
    chosen = (*ONE_LEARNER, f"collect.lag={lag}")
    async with Cluster(tmp_path, settings(*chosen)) as cluster:
        cluster.replay()
        cluster.controller()
        stopped, _ = await cluster.fake(Fault.STALL)
        for _ in range(2):
            cluster.collector()
        ahead = BLOCKS * (1 + lag)
        await cluster.status_when(lambda status: status.blocks.played == ahead, what="all ahead")
        long = 2**20
        header = pb.Played(
            rows=2 * (long + 1),
            earned=[0.0] * 6,
            won=[False] * 2,
            lengths=[long] * 2,
            digest=bytes(16),
        )
        flood = [pb.CollectorMessage(played=header).SerializeToString()]
        numerics = ready_of(cluster)
        for _ in range(3):  # refused before a row is sent
            fake = FakeCollector(cluster, numerics)
            with pytest.raises(InvalidContribution, match="was not assigned to this collector"):
                await asyncio.wait_for(fake.run(no_block, unasked=flood), WAIT_S)
        (pool,) = pools
        assert pool.totals.assigned == pool.totals.played == ahead
        assert not any(block.answer for block in pool.scheduler._open.values())
        stopped.release.set()
        await cluster.finished()
        assert not pool.lost
        assert cluster.outcome() == alone(chosen)


def an_episode(entries: int) -> FloatArray:
    """A well-formed episode of one step."""
    rows: FloatArray = np.zeros((2, entries), np.float32)
    rows[1, -1], rows[0, NO_ACTIONS] = 1.0, NO_ACTION
    return rows


@asynccontextmanager
async def flood_of_reports(cluster: Cluster, pool: FreePool, episodes: int) -> AsyncIterator[None]:
    """A collector that has told of so many episodes, which it did not write, and stays."""
    report = pb.Wrote(lengths=[1, 1], earned=[0.0] * 6, won=[False] * 2)
    reports = [pb.CollectorMessage(wrote=report).SerializeToString()] * (episodes // 2)
    fake = FakeCollector(cluster, ready_of(cluster))
    telling = asyncio.create_task(fake.run(no_block, unasked=reports))
    await eventually(
        lambda: any(player.blocks == len(reports) for player in pool.players.values()),
        what="all reports are taken",
    )
    yield
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


@asynccontextmanager
async def flood_of_episodes(cluster: Cluster, inbox: Inbox, writers: int) -> AsyncIterator[None]:
    """Writers that wait for no answer, with more episodes than there is room for."""
    status = await cluster.status_when(lambda status: True, what="any")
    rows = an_episode(inbox.intake.entries)
    run_term = read_fence(cluster.run_dir / REPLAY / status.run / FENCE).terms[TABLE]
    others = len(inbox.senders)
    address = resolve(cluster.config.replay.address, cluster.run_dir, "replay")
    async with open_channel(address) as channel:
        stub = ReplayServiceStub(channel)
        calls = [
            stub.Write(iter(flooding(run_term, writer, rows)), timeout=WAIT_S)
            for writer in range(1, 1 + writers)
        ]
        answering = [asyncio.create_task(answered(call)) for call in calls]
        await eventually(
            lambda: len(inbox.senders) == others + writers and inbox.room._first.locked(),
            what="the flood waits for room",
        )
        yield
        for task in answering:
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)


def flooding(run_term: RunTerm, writer: int, rows: FloatArray) -> list[replay_pb2.WriteRequest]:
    """The messages of a writer with many episodes."""
    hello = replay_pb2.WriterHello(
        table=TABLE,
        run_term=run_term_message(run_term),
        writer=writer,
        first=1,
        version=__version__,
    )
    requests = [replay_pb2.WriteRequest(hello=hello)]
    for sequence in range(1, 41):
        requests += episode_requests(sequence, 0, rows)
    return requests


async def answered(
    call: "grpc.aio.StreamStreamCall[replay_pb2.WriteRequest, replay_pb2.WriteResponse]",
) -> None:
    async for _ in call:
        pass


def counted_plays(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Blocks that were played, by writer."""
    plays, play = Counter[int](), BlockPlayer.play

    def counting(player: BlockPlayer, key: BlockKey, terms: PlayTerms) -> PlayedBlock:
        played = play(player, key, terms)
        plays[key.iteration] += 1
        return played

    monkeypatch.setattr(BlockPlayer, "play", counting)
    return plays


def most_taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the inbox after each time that room was taken."""
    taken, take = [0], InboxRoom.take

    async def noting(room: InboxRoom, size_bytes: int) -> None:
        await take(room, size_bytes)
        taken.append(room.taken_bytes)

    monkeypatch.setattr(InboxRoom, "take", noting)
    return taken


async def test_with_learners_stopped_free_collectors_stop_and_floods_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is at its pace, the inbox full, and every window too; then all go on."""
    room_bytes, kept, full = 2**11, 40, 12 + 10  # warm-up and window
    monkeypatch.setattr(inbox_module, "INBOX_BYTES", room_bytes)
    monkeypatch.setattr(free_pool, "KEPT_EPISODES", kept)
    inboxes, pools = made(monkeypatch, Inbox), made(monkeypatch, FreePool)
    writers, plays = made(monkeypatch, EpisodeWriter), counted_plays(monkeypatch)
    taken = most_taken(monkeypatch)

    def is_at_rest(writer: EpisodeWriter) -> bool:
        """Its window is full, and a block that was played waits."""
        return (
            len(writer._unsettled) == writer._window == 2 * BLOCK
            and BLOCK * plays[writer.writer] > writer._last
        )

    async with Cluster(tmp_path, settings(*ONE_LEARNER, *FREE)) as cluster:
        cluster.replay()
        cluster.controller()
        stopped, _ = await cluster.fake(Fault.STALL)
        for _ in range(2):
            cluster.collector()
        await eventually(
            lambda: (
                len(writers) == 2
                and all(map(is_at_rest, writers))
                and any(each.intake.draws.episodes == full for each in inboxes)
            ),
            what="table and windows are full",
        )
        at_rest, (pool,) = plays.copy(), pools
        (inbox,) = (each for each in inboxes if each.intake.draws.episodes == full)
        async with flood_of_reports(cluster, pool, 4 * kept), flood_of_episodes(cluster, inbox, 5):
            assert sum(len(written.lengths) for written in pool._written) <= kept
            assert max(taken) <= room_bytes
            assert inbox.intake.draws.episodes == full
            assert plays == at_rest
            assert all(map(is_at_rest, writers))
            stopped.release.set()
            await cluster.finished()
        assert max(taken) <= room_bytes
        assert all(len(writer._unsettled) <= 2 * BLOCK for writer in writers)
        await trained(cluster)
    held(tmp_path)
    assert f"{ITERATIONS} committed iterations" in verified(tmp_path, capsys)
