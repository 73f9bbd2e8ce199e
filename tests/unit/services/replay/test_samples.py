"""Samples over a real server: minibatches, refusals with their status, shared gathers."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank.algorithms import EnvironmentSpec, algorithms
from fullrank.codes import make_code, support
from fullrank.common.errors import (
    Corrupted,
    FullrankError,
    InvalidContribution,
    NotFound,
    OutOfRange,
)
from fullrank.common.types import FloatArray
from fullrank.environments import AgentSpec, Discrete
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.episodes import episodes_in
from fullrank.replay.file_format import FileLayout
from fullrank.replay.limits import rows_per_append
from fullrank.replay.samplers import EpisodeDraw, Sample
from fullrank.replay.table import Table
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay import pacing, servicer

from .replay_service import CAPACITY, KEY, ROW_SIZE, RUN_TERM, Replay, drawn, rows, sample, serving


async def test_a_minibatch_is_the_rows_at_its_positions(replay: Replay) -> None:
    assert await replay.client.append(0, rows(4)) == 4
    wanted = sample()
    assert np.array_equal(await drawn(replay.client, wanted), rows(4)[wanted.positions()])


async def test_a_minibatch_of_episodes_is_sent_whole_however_long_they_are(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, column = rows(9), ROW_SIZE - 1
    stored[:, column] = 0.0
    stored[[2, 8], column] = [2, 5]
    await replay.client.append(0, stored)
    draw = EpisodeDraw(length=column, newest=7)
    wanted = replace(sample(head=9, size=5), draw=draw)
    expected = replay.store.tables[KEY].minibatch(wanted)
    assert len(expected) > wanted.size
    assert np.array_equal(await drawn(replay.client, wanted), expected)
    monkeypatch.setattr(servicer, "rows_per_minibatch", lambda row_bytes: len(expected) - 1)
    with pytest.raises(InvalidContribution, match=f"which makes {len(expected)} rows"):
        await drawn(replay.client, wanted)


async def with_episodes(replay: Replay, lengths: list[int]) -> Sample:
    """Store episodes; a sample that draws 12 of them."""
    ends = np.cumsum(np.array(lengths) + 1) - 1
    stored, column = rows(int(ends[-1]) + 1), ROW_SIZE - 1
    stored[:, column] = 0.0
    stored[ends, column] = lengths
    await replay.client.append(0, stored)
    draw = EpisodeDraw(length=column, newest=len(lengths))
    return replace(sample(head=len(stored), size=12), draw=draw)


@pytest.mark.parametrize("items", [(0, 1, 2), (3, 11), tuple(range(12)), (7,)])
async def test_items_of_a_minibatch_lie_where_the_whole_one_has_them(
    replay: Replay, items: tuple[int, ...]
) -> None:
    for wanted in (await with_episodes(replay, [1, 3, 2]), sample(head=9, size=12)):
        whole = replay.store.tables[KEY].minibatch(wanted)
        gathered = await replay.client.get_sample(
            sample_message(wanted), row_size=ROW_SIZE, items=items
        )
        column = wanted.draw.length
        places = (
            [slice(item, item + 1) for item in range(12)]
            if column is None
            else episodes_in(whole, column)
        )
        mine = np.concatenate([np.arange(len(whole))[places[item]] for item in items])
        expected = np.zeros_like(whole)
        if column is not None:
            expected[:, column] = whole[:, column]
        expected[mine] = whole[mine]
        np.testing.assert_array_equal(gathered.rows, expected)
        assert gathered.size_bytes == 4 * ROW_SIZE * len(mine)
        assert gathered.items == items


@pytest.mark.parametrize("items", [(12,), (1, 0), (2, 2)])
async def test_items_that_a_sample_does_not_have_are_refused(
    replay: Replay, items: tuple[int, ...]
) -> None:
    wanted = sample_message(await with_episodes(replay, [1, 3, 2]))
    with pytest.raises(InvalidContribution, match="ascending numbers below the sample's 12"):
        await replay.client.get_sample(wanted, row_size=ROW_SIZE, items=items)


async def test_a_learner_of_eight_that_bear_a_straggler_is_sent_a_quarter() -> None:
    """Counted in bytes on the stream: (s + 1) / N of 32 episodes of 60 steps of corridor."""
    agents = [AgentSpec(name=f"{i}", observation_size=156, action=Discrete(30)) for i in range(6)]
    environment = EnvironmentSpec(agents=tuple(agents), state_size=282)
    problem = algorithms.build("qmix", micro_batches=8).problem(environment)
    code = make_code("fractional", rows=8, units=8, tolerance=1)
    assert problem.episodes is not None
    stored = np.zeros((4 * 61, problem.row_size), np.float32)
    stored[60::61, problem.episodes.length] = 60
    draw = EpisodeDraw(length=problem.episodes.length, newest=4)
    wanted = replace(sample(head=len(stored), size=32), draw=draw)
    whole = 32 * 61 * 4 * problem.row_size
    async with serving(row_size=problem.row_size, capacity=len(stored)) as replay:
        await replay.client.append(0, stored)
        for row in code.matrix:
            items = problem.items_of(support(row))
            request = pb.GetSamplesRequest(
                sample=sample_message(wanted), items=items, run=RUN_TERM.run
            )
            messages = [message async for message in replay.stub.GetSamples(iter([request]))]
            assert sum(len(message.chunk.data) for message in messages) == whole * 2 // 8
            assert sum(message.ByteSize() for message in messages) < 1.001 * whole * 2 / 8
    assert whole == 10_985_856


async def test_no_item_needs_no_request(replay: Replay) -> None:
    fetched = await replay.client.get_sample(sample_message(sample()), row_size=3, items=())
    assert (fetched.rows.shape, fetched.size_bytes) == ((0, 3), 0)


@pytest.mark.parametrize(
    ("wanted", "error", "said"),
    [
        (sample(head=13), OutOfRange, "position 12 is not written yet: head 12"),
        (sample(tail=1, head=12), OutOfRange, "position 1 was evicted: the tail is 2"),
        (sample(tail=5, head=5), OutOfRange, "an empty sample"),
        (sample(tail=2, head=12, size=2**30), InvalidContribution, "sample.size is 1073741824"),
    ],
)
async def test_a_sample_that_cannot_be_served_is_refused(
    replay: Replay,
    wanted: Sample,
    error: type[FullrankError],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "PATIENCE_S", 0.05)
    await replay.client.append(0, rows(8))
    await replay.client.append(8, rows(4, first=8))
    with pytest.raises(error, match=said):
        await replay.client.get_sample(sample_message(wanted), row_size=ROW_SIZE)
    served = sample(tail=2, head=12)
    expected = rows(12)[served.positions()]
    assert np.array_equal(await drawn(replay.client, served), expected)


@pytest.mark.parametrize("maps", [False, True])
async def test_a_table_found_damaged_is_logged_and_refused_from_then_on(
    tmp_path: Path, maps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A learner that maps the file finds the damage itself, and then asks the service."""
    said = "the row at position 2 is not what was stored"
    async with serving(directory=tmp_path) as replay:
        await replay.client.append(0, rows(4))
        if maps:
            await replay.client.map_table()
        path, slots = tmp_path / f"{KEY}.table", CAPACITY + rows_per_append(4 * ROW_SIZE)
        layout = FileLayout(row_size=ROW_SIZE, slots=slots)
        with path.open("r+b") as file:
            file.seek(layout.rows_at + 2 * layout.row_bytes)
            file.write(b"\x55")
        with pytest.raises(Corrupted, match=said):
            await drawn(replay.client, sample())
        assert f"table_unusable table={KEY} reason={path} is damaged: {said}" in caplog.text
        with pytest.raises(Corrupted, match=said):
            await replay.client.append(4, rows(1, first=4))
        with pytest.raises(Corrupted, match=said):
            await replay.client.confirm()


async def test_a_sample_of_an_unknown_table_is_not_found(replay: Replay) -> None:
    message = sample_message(sample())
    message.table = "other"
    with pytest.raises(NotFound, match="there is no table 'run/other'"):
        await replay.client.get_sample(message, row_size=ROW_SIZE)


async def test_learners_that_ask_at_once_share_one_gather(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = []
    gather = Table.gather

    def counted(table: Table, positions: np.ndarray[tuple[int], np.dtype[np.int64]]) -> FloatArray:
        gathered.append(len(positions))
        return gather(table, positions)

    await replay.client.append(0, rows(4))
    monkeypatch.setattr(Table, "gather", counted)
    clients = [ReplayClient(replay.address, deadline_s=WAIT_S) for _ in range(6)]
    for client in clients:
        client.under(RUN_TERM)
    got = await asyncio.gather(*(drawn(client, sample()) for client in clients))
    assert gathered == [8]
    assert all(np.array_equal(batch, got[0]) for batch in got)
    for client in clients:
        await client.close()


async def test_samples_asked_for_at_once_over_one_stream_come_in_order(replay: Replay) -> None:
    await replay.client.append(0, rows(4))
    wanted = [sample(iteration=iteration) for iteration in range(5)]
    got = await asyncio.gather(*(drawn(replay.client, each) for each in wanted))
    for each, batch in zip(wanted, got, strict=True):
        assert np.array_equal(batch, rows(4)[each.positions()])


async def test_an_abandoned_minibatch_does_not_spoil_the_next(replay: Replay) -> None:
    await replay.client.append(0, rows(4))
    abandoned = asyncio.create_task(drawn(replay.client, sample()))
    await asyncio.sleep(0)
    abandoned.cancel()
    await asyncio.wait({abandoned})
    wanted = sample(iteration=1)
    assert np.array_equal(await drawn(replay.client, wanted), rows(4)[wanted.positions()])
