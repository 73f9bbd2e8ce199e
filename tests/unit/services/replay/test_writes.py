"""Writers' streams: each episode once, refusals by field, bounded memory, tenure."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import google_crc32c
import grpc
import numpy as np
import pytest
from grpc import StatusCode
from tests.waiting import WAIT_S, eventually

from fullrank import __version__
from fullrank.common.errors import ConfigError, InvalidContribution, StaleTerm
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.messages import run_term_message
from fullrank.net.replay_streams import EpisodeWriter, RefusedEpisode, episode_requests
from fullrank.replay import TABLE, EpisodeLayout
from fullrank.replay.authorship import ENTRIES, authorships
from fullrank.replay.draw_window import Reach
from fullrank.replay.intake import Arrival
from fullrank.replay.pace import Pace
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay import inbox as inbox_module
from fullrank_replay.inbox import Inbox

from .replay_service import KEY, RUN_TERM, Replay, serving

LAYOUT = EpisodeLayout(observation_sizes=(2,), action_sizes=(2,))
ROW_SIZE = LAYOUT.row_size + ENTRIES
CAPACITY = 1000
FREE = Pace(updates_per_episode=0.0, slack=0, window=1, warmup=0, max_lag=100)


def episode(number: int, *, steps: int = 2) -> FloatArray:
    rows: FloatArray = np.zeros((steps + 1, LAYOUT.row_size), np.float32)
    rows[:, LAYOUT.observation] = number
    rows[:, LAYOUT.available] = 1.0
    rows[-1, LAYOUT.length] = steps
    return rows


@asynccontextmanager
async def writable(pace: Pace = FREE, *, capacity: int = CAPACITY) -> AsyncIterator[Replay]:
    """A service with an empty table that grows by arrival."""
    async with serving(row_size=ROW_SIZE, capacity=capacity) as replay:
        await opened(replay, pace, term=2, capacity=capacity)
        yield replay


async def opened(replay: Replay, pace: Pace, *, term: int, capacity: int = CAPACITY) -> None:
    await replay.client.open_table(
        row_size=ROW_SIZE,
        capacity=capacity,
        head=0,
        run_term=RunTerm(RUN_TERM.run, term),
        arrival=Arrival(episodes=LAYOUT, pace=pace),
    )


def held(replay: Replay) -> list[tuple[int, int, int]]:
    """Writer, sequence and number of every episode in the table, whose rows must be whole."""
    table = replay.store.get(KEY)
    rows = table.gather(np.arange(table.tail, table.head))
    every = authorships(rows)
    ends = np.flatnonzero(every[:, 3])
    for end in ends:
        whole = rows[max(0, end - int(rows[end, LAYOUT.length])) : end + 1, LAYOUT.observation]
        assert len(np.unique(whole)) == 1
    return [(writer, sequence, number) for writer, sequence, _, number in every[ends].tolist()]


def hello(writer: int, *, term: int = 2, first: int = 1) -> pb.WriteRequest:
    greeting = pb.WriterHello(
        table=TABLE,
        run_term=run_term_message(RunTerm(RUN_TERM.run, term)),
        writer=writer,
        first=first,
        version=__version__,
    )
    return pb.WriteRequest(hello=greeting)


def sent(numbers: Sequence[int]) -> list[pb.WriteRequest]:
    return [
        request for number in numbers for request in episode_requests(number, 0, episode(number))
    ]


async def answers(replay: Replay, requests: Sequence[pb.WriteRequest]) -> list[pb.WriteResponse]:
    """All answers to a stream that its writer closes."""
    return [each async for each in replay.stub.Write(iter(requests), timeout=WAIT_S)]


def inbox(replay: Replay) -> Inbox:
    return replay.servicer._writes._inboxes[KEY]


async def test_many_writers_episodes_are_stored_in_each_one_s_order_and_once() -> None:
    async with writable() as replay:
        writers = [
            EpisodeWriter(replay.address, run_term=RunTerm("run", 2), window=3) for _ in range(4)
        ]

        async def play(writer: EpisodeWriter) -> None:
            for number in range(1, 26):
                assert await writer.write(episode(number), version=number) == number
            await writer.flush()

        await asyncio.gather(*map(play, writers))
        stored = held(replay)
        assert [number for *_, number in stored] == list(range(1, 101))
        for writer in writers:
            assert writer.settled == 25
            assert [each for of, each, _ in stored if of == writer.writer] == list(range(1, 26))
            await writer.close()
        assert inbox(replay).room.taken_bytes == 0


async def test_what_is_sent_again_is_acknowledged_and_not_stored_again() -> None:
    async with writable() as replay:
        await answers(replay, [hello(7), *sent([1, 2])])
        greeting, *others = await answers(replay, [hello(7), *sent([1, 2, 3])])
        assert greeting.settled == 2
        assert max(each.settled for each in others) == 3
        assert [sequence for _, sequence, _ in held(replay)] == [1, 2, 3]
        assert inbox(replay).intake.repeated == 2


def damaged(numbers: Sequence[int]) -> list[pb.WriteRequest]:
    """An episode with each fault: checksum, end in the middle, value, action, total, version."""
    requests = sent(numbers)
    requests[0].chunk.crc32c += 1
    spoilt = [episode(number) for number in numbers[1:4]]
    spoilt[0][0, LAYOUT.length] = 1
    spoilt[1][1, 0] = np.nan
    spoilt[2][0, LAYOUT.action] = 2
    requests[1:4] = [
        request
        for number, rows in zip(numbers[1:4], spoilt, strict=True)
        for request in episode_requests(number, 0, rows)
    ]
    requests[4].chunk.total += 1
    requests[5].episode.version = 2**60
    return requests


async def test_a_bad_episode_is_refused_by_field_and_the_stream_goes_on() -> None:
    async with writable() as replay:
        requests = [hello(7), *damaged(range(1, 7)), *sent([7, 7, 8])]
        responses = await answers(replay, requests)
        refused = {each.sequence: each for response in responses for each in response.refused}
        fields = {sequence: each.field for sequence, each in refused.items()}
        assert fields == {
            1: "chunk.crc32c",
            2: "length",
            3: "rows[1][0]",
            4: "action",
            5: "chunk.total",
            6: "version",
            7: "sequence",
        }
        assert max(response.settled for response in responses) == 8
        assert [sequence for _, sequence, _ in held(replay)] == [7, 8]
        assert inbox(replay).room.taken_bytes == 0


async def test_what_was_refused_is_told_to_a_writer_that_lost_the_answer() -> None:
    async with writable() as replay:
        await answers(replay, [hello(7), *damaged(range(1, 7)), *sent([7])])
        greeting, *_ = await answers(replay, [hello(7)])
        assert greeting.settled == 7
        assert [each.sequence for each in greeting.refused] == [1, 2, 3, 4, 5, 6]


async def test_an_episode_that_waits_is_not_settled_when_the_next_one_is_refused() -> None:
    async with writable() as replay:
        call = replay.stub.Write(timeout=WAIT_S)
        await call.write(hello(7))
        await call.read()
        async with replay.servicer._pacing.turn():  # nothing is stored meanwhile
            for request in sent([1, 2]):
                request.chunk.total += request.episode.sequence - 1
                await call.write(request)
            answer = cast(pb.WriteResponse, await call.read())
            assert [refusal.sequence for refusal in answer.refused] == [2]
            assert answer.settled == 0
        await call.done_writing()
        assert cast(pb.WriteResponse, await call.read()).settled == 2
        assert [sequence for _, sequence, _ in held(replay)] == [1]


async def test_an_episode_that_is_never_finished_is_refused_or_dropped() -> None:
    async with writable() as replay:
        whole = sent([1])[0]
        half = pb.WriteRequest.FromString(whole.SerializeToString())
        half.chunk.data = half.chunk.data[:-4]
        half.chunk.crc32c = google_crc32c.value(half.chunk.data)
        responses = await answers(replay, [hello(7), half, *sent([2])])
        refused = [each for response in responses for each in response.refused]
        assert [(each.sequence, each.field) for each in refused] == [(1, "chunk.total")]
        half.episode.sequence = 3
        *_, last = await answers(replay, [hello(7), half])
        assert last.settled == 2
        assert [sequence for _, sequence, _ in held(replay)] == [2]
        assert inbox(replay).room.taken_bytes == 0


@pytest.mark.parametrize(
    ("requests", "code", "named"),
    [
        ([], StatusCode.INVALID_ARGUMENT, "hello is missing"),
        (sent([1]), StatusCode.INVALID_ARGUMENT, "hello is missing"),
        ([hello(0)], StatusCode.INVALID_ARGUMENT, "hello.writer is 0"),
        ([hello(2**48)], StatusCode.INVALID_ARGUMENT, "hello.writer is 281474976710656"),
        ([hello(1, first=0)], StatusCode.INVALID_ARGUMENT, "hello.first is 0"),
        ([hello(1), hello(1)], StatusCode.INVALID_ARGUMENT, "hello is given again"),
        ([hello(1, term=1)], StatusCode.ABORTED, "was opened in term 2"),
    ],
)
async def test_a_stream_that_names_no_admitted_writer_ends_by_name(
    requests: Sequence[pb.WriteRequest], code: StatusCode, named: str
) -> None:
    async with writable() as replay:
        with pytest.raises(grpc.aio.AioRpcError, match=named) as raised:
            await answers(replay, requests)
        assert raised.value.code() is code


async def test_a_table_by_position_takes_no_episodes_and_one_by_arrival_no_appends() -> None:
    async with serving(row_size=ROW_SIZE) as replay:
        writer = EpisodeWriter(replay.address, run_term=RUN_TERM)
        await writer.write(episode(1), version=0)
        with pytest.raises(ConfigError, match="written by position"):
            await writer.flush()
        await writer.close()
    async with writable() as replay:
        with pytest.raises(InvalidContribution, match="grows by arrival"):
            await replay.client.append(0, np.zeros((1, ROW_SIZE), np.float32))


async def test_another_controller_fences_the_writers_off_and_keeps_what_they_wrote() -> None:
    async with writable() as replay:
        writer = EpisodeWriter(replay.address, run_term=RunTerm("run", 2))
        await writer.write(episode(1), version=0)
        await writer.flush()
        await opened(replay, FREE, term=3)
        assert replay.head == 3
        with suppress(StaleTerm):  # it may have been told already
            await writer.write(episode(2), version=0)
        with pytest.raises(StaleTerm):
            await writer.flush()
        await replay.client.await_draw(0, newest=CAPACITY)  # before, none is known to be stale
        writer.renew(RunTerm("run", 3))
        await writer.flush()
        assert [sequence for _, sequence, _ in held(replay)] in ([1], [1, 2])
        await writer.write(episode(3), version=0)
        await writer.flush()
        await writer.close()


async def test_an_older_stream_of_the_same_writer_ends() -> None:
    async with writable() as replay:
        older = replay.stub.Write(timeout=WAIT_S)
        await older.write(hello(7))
        assert isinstance(await older.read(), pb.WriteResponse)
        await answers(replay, [hello(7), *sent([1])])
        assert await older.code() is StatusCode.UNAVAILABLE
        assert "has opened another stream" in (await older.details() or "")


async def test_writers_wait_at_the_window_until_an_iteration_asks_and_nothing_is_lost() -> None:
    pace = Pace(updates_per_episode=1.0, slack=0, window=2, warmup=4, max_lag=100)
    async with writable(pace) as replay:
        writers = [
            EpisodeWriter(replay.address, run_term=RunTerm("run", 2), window=2) for _ in range(3)
        ]

        async def play(writer: EpisodeWriter) -> None:
            for number in range(1, 11):
                await writer.write(episode(number), version=number)
            await writer.flush()

        playing = [asyncio.create_task(play(writer)) for writer in writers]
        for iteration in range(25):
            while not isinstance(
                drawn := await replay.client.await_draw(iteration, newest=CAPACITY), Reach
            ):
                pass
            assert iteration <= drawn.newest.number - 4 <= iteration + 2
        await asyncio.gather(*playing)
        assert len(held(replay)) == 30
        for writer in writers:
            await writer.close()


async def test_stale_episodes_are_refused_and_named_to_their_writer() -> None:
    pace = Pace(updates_per_episode=100.0, slack=9, window=9, warmup=1, max_lag=2)
    async with writable(pace) as replay:
        refused: list[RefusedEpisode] = []
        writer = EpisodeWriter(
            replay.address, run_term=RunTerm("run", 2), window=1, refused=refused.append
        )
        await writer.write(episode(1), version=0)
        await writer.flush()
        assert isinstance(await replay.client.await_draw(5, newest=CAPACITY), Reach)
        await writer.write(episode(2), version=3)  # iteration 6 is the first that can draw it
        await writer.write(episode(3), version=4)
        await writer.flush()
        assert [(each.sequence, each.field) for each in refused] == [(2, "version")]
        assert [sequence for _, sequence, _ in held(replay)] == [1, 3]
        await writer.close()


async def test_memory_is_bounded_while_writers_flood_and_no_iteration_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Streams are not read beyond the room; once an iteration asks, everything is stored."""
    size = episode(1).nbytes
    monkeypatch.setattr(inbox_module, "INBOX_BYTES", 5 * size)
    pace = Pace(updates_per_episode=1 / 80, slack=0, window=4, warmup=0, max_lag=100)
    async with writable(pace) as replay:
        calls = [
            replay.stub.Write(iter([hello(writer), *sent(range(1, 41))]), timeout=WAIT_S)
            for writer in range(1, 9)
        ]
        reading = [asyncio.create_task(answered(call)) for call in calls]
        await eventually(
            lambda: replay.head == 12 and inbox(replay).room.taken_bytes == 5 * size,
            what="the inbox is full",
        )
        assert len(held(replay)) == 4
        most = 0
        for iteration in range(1, 5):
            while not isinstance(await replay.client.await_draw(iteration, newest=600), Reach):
                most = max(most, inbox(replay).room.taken_bytes)
        assert most <= 5 * size
        await asyncio.gather(*reading)
        assert sorted((writer, sequence) for writer, sequence, _ in held(replay)) == [
            (writer, sequence) for writer in range(1, 9) for sequence in range(1, 41)
        ]
        assert inbox(replay).room.taken_bytes == 0


async def test_an_iteration_beyond_every_version_is_refused_before_its_pace_is_counted() -> None:
    """Beyond the integers that a float64 tells apart, counting what is due takes for ever."""
    pace = Pace(updates_per_episode=1.3 * 2**-20, slack=0, window=1, warmup=1, max_lag=1)
    async with writable(pace) as replay:
        with pytest.raises(InvalidContribution, match=f"iteration is {2**63 + 12345}, more than"):
            await replay.client.await_draw(2**63 + 12345, newest=CAPACITY)


async def answered(call: "grpc.aio.StreamStreamCall[pb.WriteRequest, pb.WriteResponse]") -> int:
    return max([response.settled async for response in call])


async def test_what_arrives_while_a_minibatch_is_gathered_is_one_group() -> None:
    async with writable() as replay:
        calls: list[Any] = [replay.stub.Write(timeout=WAIT_S) for _ in range(8)]
        for writer, call in enumerate(calls, 1):
            await call.write(hello(writer))
            assert isinstance(await call.read(), pb.WriteResponse)
        async with replay.servicer._pacing.turn():  # as a gather has it
            for call in calls:
                for request in sent([1, 2]):
                    await call.write(request)
            await eventually(lambda: len(inbox(replay)._waiting) == 16, what="all wait")
        for call in calls:
            await call.done_writing()
            while (await call.read()).settled < 2:
                pass
            assert await call.code() is StatusCode.OK
        assert inbox(replay).groups == 1
        assert len(held(replay)) == 16
