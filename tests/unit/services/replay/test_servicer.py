"""ReplayService over a real server: every refusal has its status, and the service still answers."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank import __version__
from fullrank.common.errors import (
    FullrankError,
    InvalidContribution,
    NotFound,
    OutOfRange,
    StaleTerm,
    VersionMismatch,
)
from fullrank.common.types import FloatArray, RunTerm
from fullrank.replay import TABLE, Sample, Table
from fullrank.rpc import clients
from fullrank.rpc.channel import MESSAGE_BYTES, open_channel
from fullrank.rpc.clients import ReplayClient, append_requests
from fullrank.rpc.codec import CHUNK_BYTES
from fullrank.rpc.messages import run_term_message, sample_message
from fullrank.rpc.security import PLAINTEXT
from fullrank.rpc.server import Server
from fullrank.runs.event_log import EventLog
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub
from fullrank_replay import appends, servicer
from fullrank_replay.fence import Fence
from fullrank_replay.servicer import ReplayServicer
from fullrank_replay.store import Store

if TYPE_CHECKING:
    from fullrank.v1.replay_pb2_grpc import ReplayServiceAsyncStub

ROW_SIZE, CAPACITY = 3, 10
VERSION = re.escape(__version__)
RUN_TERM, SUCCESSOR = RunTerm("run", 1), RunTerm("run", 2)


@dataclass(frozen=True, slots=True)
class Replay:
    """A serving replay service, and two ways to call it."""

    client: ReplayClient
    stub: "ReplayServiceAsyncStub"
    address: str
    servicer: ReplayServicer
    store: Store

    @property
    def head(self) -> int:
        """One past the last row that the table holds."""
        return self.store.get(TABLE).head

    async def append(self, messages: Sequence[pb.AppendRequest]) -> pb.AppendResponse:
        """Make one append of these messages."""
        return await self.stub.Append(iter(messages), timeout=WAIT_S)

    async def refused(self, messages: Sequence[pb.AppendRequest]) -> tuple[grpc.StatusCode, str]:
        """Status and details with which an append is refused."""
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await self.append(messages)
        return raised.value.code(), raised.value.details() or ""


@asynccontextmanager
async def serving(*, row_size: int = ROW_SIZE, capacity: int = CAPACITY) -> AsyncIterator[Replay]:
    """A service with an empty table."""
    store = Store(None, sync=False)
    service = ReplayServicer(store, Fence(None), EventLog())
    server = Server(
        pb.DESCRIPTOR.services_by_name["ReplayService"],
        service,
        security=PLAINTEXT,
        prebuilt=frozenset({"GetSamples"}),
    )
    address = await server.start("127.0.0.1:0")
    client = ReplayClient(address, deadline_s=WAIT_S)
    async with open_channel(address) as channel:
        await client.open_table(row_size=row_size, capacity=capacity, head=0, run_term=RUN_TERM)
        yield Replay(client, ReplayServiceStub(channel), address, service, store)
        await client.close()
    await server.stop()


@pytest.fixture
async def replay() -> AsyncIterator[Replay]:
    async with serving() as service:
        yield service


def rows(count: int, *, first: int = 0, row_size: int = ROW_SIZE) -> FloatArray:
    """Row p holds p x row_size, ..., so that every position is distinguishable."""
    start, end = first * row_size, (first + count) * row_size
    return np.arange(start, end, dtype=np.float32).reshape(count, row_size)


def append(data: FloatArray, *, at: int = 0, table: str = TABLE) -> list[pb.AppendRequest]:
    return list(append_requests(table, at, data, run_term=run_term_message(RUN_TERM)))


def damaged(sent: FloatArray, **changes: object) -> list[pb.AppendRequest]:
    """An append of ``sent`` at position 4 whose first chunk has other fields."""
    messages = append(sent, at=4)
    for name, value in changes.items():
        setattr(messages[0].chunk, name, value)
    return messages


def sample(*, tail: int = 0, head: int = 4, size: int = 8, iteration: int = 0) -> Sample:
    return Sample(table=TABLE, seed=1, iteration=iteration, tail=tail, head=head, size=size)


async def reopened(client: ReplayClient, run_term: RunTerm, *, head: int) -> tuple[int, int]:
    return await client.open_table(
        row_size=ROW_SIZE, capacity=CAPACITY, head=head, run_term=run_term
    )


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def drawn(client: ReplayClient, wanted: Sample, *, row_size: int = ROW_SIZE) -> FloatArray:
    out = np.empty((wanted.size, row_size), np.float32)
    await client.get_sample(sample_message(wanted), out)
    return out


async def test_a_minibatch_is_the_rows_at_its_positions(replay: Replay) -> None:
    assert await replay.client.append(0, rows(4)) == 4
    wanted = sample()
    assert np.array_equal(await drawn(replay.client, wanted), rows(4)[wanted.positions()])


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
            [*append(rows(1), at=4), pb.AppendRequest()],
            grpc.StatusCode.INVALID_ARGUMENT,
            "chunk.offset is 0, beyond the end",
        ),
        ([], grpc.StatusCode.INVALID_ARGUMENT, "at least one message"),
        (append(INFINITE, at=4), grpc.StatusCode.INVALID_ARGUMENT, "not finite"),
        (append(rows(1)[:, :2], at=4), grpc.StatusCode.INVALID_ARGUMENT, "whole number of rows"),
        (append(rows(11), at=4), grpc.StatusCode.INVALID_ARGUMENT, "exceed the capacity of 10"),
        (append(rows(1), table="t"), grpc.StatusCode.NOT_FOUND, "there is no table 't'"),
        (
            damaged(rows(1), data=bytes(MESSAGE_BYTES)),
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "larger than max",
        ),
    ],
    ids=lambda value: value.name if isinstance(value, grpc.StatusCode) else "",
)
async def test_a_wrong_append_is_refused_and_stores_nothing(
    replay: Replay, messages: list[pb.AppendRequest], code: grpc.StatusCode, said: str
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
            call = ReplayServiceStub(channel).Append(timeout=WAIT_S)
            for message in messages[:-1]:
                await call.write(message)
            await eventually(lambda: service.servicer.waiting == 1)
        await eventually(lambda: service.servicer.waiting == 0)
        assert service.head == 0
        assert (await service.append(messages)).head == 1


async def test_a_caller_that_sends_no_more_gives_its_room_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(appends, "RECEIVE_S", 0.05)
    async with serving(row_size=LARGE, capacity=3) as service:
        messages = append(rows(1, row_size=LARGE))
        call = service.stub.Append(timeout=WAIT_S)
        await call.write(messages[0])
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert (await service.append(messages)).head == 1


async def test_large_appends_take_a_bounded_room_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appends, "APPENDS", 1)
    async with serving(row_size=LARGE, capacity=3) as service:
        messages = append(rows(1, row_size=LARGE))
        call = service.stub.Append(timeout=WAIT_S)
        await call.write(messages[0])
        await eventually(lambda: service.servicer.waiting == 1)
        code, details = await service.refused(messages)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert f"1 appends of {4 * LARGE} bytes wait already" in details
        call.cancel()
        await eventually(lambda: service.servicer.waiting == 0)
        assert (await service.append(messages)).head == 1


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
    monkeypatch.setattr(servicer, "PATIENCE_S", 0.05)
    await replay.client.append(0, rows(8))
    await replay.client.append(8, rows(4, first=8))
    message, out = sample_message(wanted), np.empty((1, ROW_SIZE), np.float32)
    with pytest.raises(error, match=said):
        await replay.client.get_sample(message, out)
    served = sample(tail=2, head=12)
    expected = rows(12)[served.positions()]
    assert np.array_equal(await drawn(replay.client, served), expected)


async def test_a_sample_of_an_unknown_table_is_not_found(replay: Replay) -> None:
    message = sample_message(sample())
    message.table = "other"
    with pytest.raises(NotFound, match="there is no table 'other'"):
        await replay.client.get_sample(message, np.empty((8, ROW_SIZE), np.float32))


async def test_learners_that_ask_at_once_share_one_gathering(
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


async def test_reopening_forgets_what_a_resumed_run_writes_again(replay: Replay) -> None:
    await replay.client.append(0, rows(6))
    first = await drawn(replay.client, sample())
    assert await reopened(replay.client, SUCCESSOR, head=2) == (0, 2)
    await replay.client.append(2, rows(4, first=50))
    again = await drawn(replay.client, sample())
    table = np.concatenate([rows(2), rows(4, first=50)])
    assert np.array_equal(again, table[sample().positions()])
    assert not np.array_equal(again, first)


@pytest.mark.parametrize("field", ["table", "row_size", "capacity"])
async def test_a_table_needs_a_name_and_sizes(replay: Replay, field: str) -> None:
    request = pb.OpenTableRequest(
        table="t", row_size=3, capacity=4, run_term=run_term_message(RUN_TERM)
    )
    request.ClearField(field)  # type: ignore[arg-type]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await replay.stub.OpenTable(request, timeout=WAIT_S)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_table_of_another_size_is_a_failed_precondition(replay: Replay) -> None:
    request = pb.OpenTableRequest(
        table=TABLE,
        row_size=ROW_SIZE + 1,
        capacity=CAPACITY,
        run_term=run_term_message(SUCCESSOR),
        version=__version__,
    )
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await replay.stub.OpenTable(request, timeout=WAIT_S)
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "use another run directory" in (raised.value.details() or "")


async def test_a_controller_and_a_service_of_other_versions_refuse_each_other(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "__version__", "0.0.1")
    with pytest.raises(VersionMismatch, match=rf"version 0\.0\.1 of the controller .* {VERSION};"):
        await reopened(replay.client, SUCCESSOR, head=0)
    monkeypatch.setattr(clients, "__version__", __version__)
    monkeypatch.setattr(servicer, "__version__", "0.0.1")
    with pytest.raises(VersionMismatch, match=rf"version 0\.0\.1 of the replay .* {VERSION};"):
        await reopened(replay.client, SUCCESSOR, head=0)


async def test_a_controller_that_was_followed_by_another_appends_nothing_more(
    replay: Replay,
) -> None:
    await replay.client.append(0, rows(2))
    successor = ReplayClient(replay.address, deadline_s=WAIT_S)
    assert await reopened(successor, SUCCESSOR, head=2) == (0, 2)
    code, details = await replay.refused(append(rows(2, first=2), at=2))
    assert code is grpc.StatusCode.ABORTED
    assert "was opened in term 2 of run run; term 1" in details
    with pytest.raises(StaleTerm):
        await replay.client.append(2, rows(2, first=2))
    assert await successor.append(2, rows(1, first=2)) == 3
    await successor.close()


@pytest.mark.parametrize("term", [1, 2])
async def test_a_table_is_not_opened_again_in_the_same_or_an_earlier_term(
    replay: Replay, term: int
) -> None:
    await reopened(replay.client, SUCCESSOR, head=0)
    await replay.client.append(0, rows(3))
    other = ReplayClient(replay.address, deadline_s=WAIT_S)
    with pytest.raises(StaleTerm, match=f"opened in term 2 of run run; term {term}"):
        await reopened(other, RunTerm("run", term), head=0)
    await other.close()
    assert await replay.client.append(3, rows(1, first=3)) == 4  # nothing was forgotten


async def test_another_run_may_take_over_a_table(replay: Replay) -> None:
    await replay.client.append(0, rows(3))
    other = ReplayClient(replay.address, deadline_s=WAIT_S)
    assert await reopened(other, RunTerm("other", 1), head=0) == (0, 0)
    with pytest.raises(StaleTerm):
        await replay.client.append(3, rows(1, first=3))
    await other.close()
