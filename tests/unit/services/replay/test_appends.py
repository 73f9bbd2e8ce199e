"""Appends over a real server: every refusal has its status and stores nothing."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import grpc
import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank.common.errors import Overloaded
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.channel import MESSAGE_BYTES, open_channel
from fullrank.net.codec import CHUNK_BYTES
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.limits import APPEND_BYTES
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub
from fullrank_replay import appends, pacing
from fullrank_replay.appends import APPENDS, AppendRoom

from .replay_service import KEY, RUN_TERM, Replay, append, drawn, eventually, rows, sample, serving


def damaged(sent: FloatArray, **changes: object) -> list[pb.AcceptBlocksRequest]:
    """An append of ``sent`` at position 4 whose first chunk has other fields."""
    messages = append(sent, at=4)
    for name, value in changes.items():
        setattr(messages[0].chunk, name, value)
    return messages


async def test_a_large_append_and_minibatch_travel_in_chunks() -> None:
    row_size = 1000
    count = 3 * CHUNK_BYTES // (4 * row_size)
    async with serving(row_size=row_size, capacity=count) as service:
        data = rows(count, row_size=row_size)
        await service.client.append(0, data)
        wanted = sample(head=count, size=count)
        got = await drawn(service.client, wanted, row_size=row_size)
    assert np.array_equal(got, data[wanted.positions()])


async def test_an_append_may_be_repeated(replay: Replay) -> None:
    for _ in range(3):
        assert (await replay.append(append(rows(4)))).head == 4
    assert (await replay.append(append(rows(6)))).head == 6
    wanted = sample(head=6)
    assert np.array_equal(await drawn(replay.client, wanted), rows(6)[wanted.positions()])


async def test_rows_sent_again_are_stored_once_and_counted(replay: Replay) -> None:
    requests = [append(rows(4)), append(rows(4)), append(rows(6)), append(rows(3, first=2), at=2)]
    answers = [await replay.append(messages) for messages in requests]
    assert [(answer.head, answer.repeated) for answer in answers] == [
        (4, 0),
        (4, 4),
        (6, 8),
        (6, 11),
    ]


async def test_an_append_evicts_what_a_sample_that_it_tells_of_could_draw(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "PATIENCE_S", 0.0)
    await replay.client.append(0, rows(10))
    await drawn(replay.client, sample(head=10))
    await replay.client.append(10, rows(10, first=10))
    code, details = await replay.refused(append(rows(1, first=20), at=20))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "up to position 21 would evict" in details
    replay.client.drew(sample(tail=10, head=20))
    assert await replay.client.append(20, rows(1, first=20)) == 21


async def test_an_append_that_waits_tells_of_a_sample_that_is_drawn_meanwhile(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "PATIENCE_S", 0.0)
    await replay.client.append(0, rows(10))
    replay.client.drew(sample(head=10))
    await replay.client.append(10, rows(10, first=10))
    refused = asyncio.Event()
    until = pacing.Pacing.until

    async def heard(self: pacing.Pacing, condition: Callable[[], bool]) -> bool:
        passes = await until(self, condition)
        if not passes:
            refused.set()
        return passes

    monkeypatch.setattr(pacing.Pacing, "until", heard)
    waiting = asyncio.create_task(replay.client.append(20, rows(1, first=20)))
    await refused.wait()
    replay.client.drew(sample(tail=10, head=20))
    assert await waiting == 21


async def test_a_sample_beyond_the_head_lets_no_later_append_pass(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "PATIENCE_S", 0.0)
    replay.client.drew(sample(head=1000))
    await replay.client.append(0, rows(1))
    await replay.append(append(rows(9, first=1), at=1))
    code, _ = await replay.refused(append(rows(1, first=10), at=10))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_another_row_at_a_written_position_is_refused(replay: Replay) -> None:
    await replay.client.append(0, rows(4))
    code, details = await replay.refused(append(rows(4, first=1)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "a position is written once" in details


INFINITE = np.array([[1.0, np.inf, 0.0]], np.float32)


@pytest.mark.parametrize(
    ("messages", "code", "said"),
    [
        (append(rows(1), at=5), grpc.StatusCode.OUT_OF_RANGE, "would leave a gap: the head is 4"),
        (append(rows(1), at=2**63), grpc.StatusCode.OUT_OF_RANGE, "would leave a gap"),
        (damaged(rows(1), crc32c=1), grpc.StatusCode.INVALID_ARGUMENT, "chunk.crc32c does not"),
        (damaged(rows(1), array=1), grpc.StatusCode.INVALID_ARGUMENT, "chunk.array is 1"),
        (damaged(rows(1), offset=4), grpc.StatusCode.INVALID_ARGUMENT, "chunk.offset is 4"),
        (damaged(rows(2), total=36), grpc.StatusCode.INVALID_ARGUMENT, "the stream ended before"),
        (damaged(rows(2), total=12), grpc.StatusCode.INVALID_ARGUMENT, "chunk.data of 24 bytes"),
        (damaged(rows(1), total=2**62), grpc.StatusCode.INVALID_ARGUMENT, "whole number of rows"),
        (
            damaged(rows(1), total=12 * 2**40),
            grpc.StatusCode.INVALID_ARGUMENT,
            "an append has at most 4194300 bytes",
        ),
        (append(rows(1), at=4) * 2, grpc.StatusCode.INVALID_ARGUMENT, "table is given again"),
        (
            [*append(rows(1), at=4), pb.AcceptBlocksRequest()],
            grpc.StatusCode.INVALID_ARGUMENT,
            "chunk.offset is 0, beyond the end",
        ),
        ([], grpc.StatusCode.INVALID_ARGUMENT, "at least one message"),
        (append(INFINITE, at=4), grpc.StatusCode.INVALID_ARGUMENT, "not finite"),
        (append(rows(1)[:, :2], at=4), grpc.StatusCode.INVALID_ARGUMENT, "whole number of rows"),
        (append(rows(11), at=4), grpc.StatusCode.INVALID_ARGUMENT, "exceed the capacity of 10"),
        (append(rows(1), table="t"), grpc.StatusCode.NOT_FOUND, "there is no table 'run/t'"),
        (
            damaged(rows(1), data=bytes(MESSAGE_BYTES)),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "larger than max",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, grpc.StatusCode) else "",
)
async def test_a_wrong_append_is_refused_and_stores_nothing(
    replay: Replay, messages: list[pb.AcceptBlocksRequest], code: grpc.StatusCode, said: str
) -> None:
    await replay.client.append(0, rows(4))
    async with grpc.aio.insecure_channel(replay.address) as unlimited:
        refused = await replace(replay, stub=ReplayServiceStub(unlimited)).refused(messages)
    assert refused[0] is code
    assert said in refused[1]
    assert await replay.client.append(4, rows(1, first=4)) == 5
    wanted = sample(head=5)
    assert np.array_equal(await drawn(replay.client, wanted), rows(5)[wanted.positions()])


LARGE = MESSAGE_BYTES // 4 + 1000
"""Entries of a row that is larger than a message."""


async def test_rows_larger_than_a_message_are_stored_once_and_drawn() -> None:
    async with serving(row_size=LARGE, capacity=3) as service:
        data = rows(2, row_size=LARGE)
        assert await service.client.append(0, data) == 2
        assert await service.client.append(0, data) == 2
        wanted = sample(head=2, size=3)
        got = await drawn(service.client, wanted, row_size=LARGE)
    assert np.array_equal(got, data[wanted.positions()])


async def test_an_append_that_breaks_off_stores_nothing_and_can_be_made_again() -> None:
    async with serving(row_size=LARGE, capacity=3) as service:
        messages = append(rows(1, row_size=LARGE))
        async with open_channel(service.address) as channel:
            call = ReplayServiceStub(channel).AcceptBlocks(timeout=WAIT_S)
            for message in messages[:-1]:
                await call.write(message)
            await eventually(lambda: service.servicer._appends.room.count == 1)
        await eventually(lambda: service.servicer._appends.room.count == 0)
        assert service.head == 0
        assert (await service.append(messages)).head == 1


async def test_an_append_that_a_successor_overtakes_stores_nothing() -> None:
    async with serving(row_size=LARGE, capacity=3) as service:
        first, *others = append(rows(1, row_size=LARGE))
        call = service.stub.AcceptBlocks(timeout=WAIT_S)
        await call.write(first)
        await eventually(lambda: service.servicer._appends.room.count == 1)
        successor = ReplayClient(service.address, deadline_s=WAIT_S)
        await successor.open_table(
            row_size=LARGE, capacity=3, head=0, run_term=RunTerm(RUN_TERM.run, 2)
        )
        for message in others:
            await call.write(message)
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.ABORTED
        assert service.head == 0
        await successor.close()


async def test_an_append_whose_caller_is_gone_keeps_its_turn_until_it_is_stored(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, entered, release = replay.store.get(KEY), threading.Event(), threading.Event()
    store = table.append

    def slow(first: int, data: FloatArray) -> int:
        entered.set()
        assert release.wait(WAIT_S)
        return store(first, data)

    async def messages() -> AsyncIterator[pb.AcceptBlocksRequest]:
        for message in more:
            yield message

    monkeypatch.setattr(table, "append", slow)
    request, *more = append(rows(1))
    serving = asyncio.create_task(replay.servicer._appends.serve(request, messages()))
    assert await asyncio.to_thread(entered.wait, WAIT_S)
    serving.cancel()
    await asyncio.wait({serving})
    still_waiting = replay.servicer._appends.room.count
    release.set()
    assert still_waiting == 1
    await eventually(lambda: replay.servicer._appends.room.count == 0)
    assert replay.head == 1


def test_large_appends_fill_the_room_however_few_they_are() -> None:
    room = AppendRoom()
    with room.lent(APPENDS * APPEND_BYTES), pytest.raises(Overloaded), room.lent(1):
        pass
    with room.lent(2 * APPENDS * APPEND_BYTES):  # one row that is larger is admitted alone
        assert room.count == 1


async def test_a_caller_that_sends_no_more_gives_its_room_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(row_size=LARGE, capacity=3) as service:
        messages = append(rows(1, row_size=LARGE))
        with monkeypatch.context() as patch:
            patch.setattr(appends, "RECEIVE_S", 0.05)
            call = service.stub.AcceptBlocks(timeout=WAIT_S)
            await call.write(messages[0])
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await service.append(messages)).head == 1


async def test_large_appends_take_a_bounded_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "APPENDS", 1)
    async with serving(row_size=LARGE, capacity=3) as service:
        messages = append(rows(1, row_size=LARGE))
        call = service.stub.AcceptBlocks(timeout=WAIT_S)
        await call.write(messages[0])
        await eventually(lambda: service.servicer._appends.room.count == 1)
        code, details = await service.refused(messages)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"1 appends of {4 * LARGE} bytes wait already" in details
        call.cancel()
        await eventually(lambda: service.servicer._appends.room.count == 0)
        assert (await service.append(messages)).head == 1
