"""Subscribers get each iteration once and in order; later terms supersede, slow readers skip."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.disks import no_room_beyond
from tests.unit.runs.test_record import record
from tests.waiting import WAIT_S

from fullrank.common.errors import ServiceLost, StorageFailed
from fullrank.runs.record import METRICS, Condemnation
from fullrank.sinks import JsonLines
from fullrank.v1 import monitor_pb2 as pb
from fullrank_controller.monitor import log as module
from fullrank_controller.monitor import servicer
from fullrank_controller.monitor.log import IterationLog
from fullrank_controller.monitor.servicer import Subscriptions


class Story:
    """A scripted run and its subscribers."""

    def __init__(self, path: Path) -> None:
        self.path = path / METRICS
        self.sink = JsonLines(self.path)
        self.iterations = IterationLog(self.path)
        self.end = -1
        self.subscriptions = Subscriptions(self.iterations, is_last=lambda last: last == self.end)

    def commit(self, *numbers: int, term: int = 1) -> None:
        for number in numbers:
            self.sink.write(record(number, term=term))

    def resume(self) -> None:
        """Open the file as a restarted controller does."""
        self.sink.close()
        self.sink = JsonLines(self.path)

    async def seen(self, **request: int | bool) -> list[tuple[int, int]]:
        """(term, iteration) of all committed iterations."""
        messages = self.subscriptions.watch(pb.WatchRequest(until_now=True, **request))
        return [each for message in [m async for m in messages] for each in told(message)]


def told(message: bytes) -> list[tuple[int, int]]:
    return [(each.term, each.iteration) for each in pb.WatchResponse.FromString(message).iterations]


def _data(number: int) -> bytes:
    encoded = module._encoded(record(number))
    assert isinstance(encoded, module.Encoded)
    return encoded.data


def ids(numbers: Sequence[int], term: int = 1) -> list[tuple[int, int]]:
    return [(term, number) for number in numbers]


@pytest.fixture
async def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Story]:
    monkeypatch.setattr(servicer, "PERIOD_S", 0.001)
    told = Story(tmp_path)
    yield told
    await told.subscriptions.close("the controller is stopping")
    told.iterations.close()
    told.sink.close()


async def test_who_comes_late_gets_all_that_was_committed(story: Story) -> None:
    story.commit(*range(5))
    assert await story.seen() == ids(range(5))
    assert await story.seen(from_iteration=3) == ids([3, 4])
    assert await story.seen(from_iteration=9) == []


async def test_what_is_committed_follows_what_was_without_gap_or_repetition(story: Story) -> None:
    story.commit(0, 1)
    story.end = 7
    seen: list[tuple[int, int]] = []
    async for message in story.subscriptions.watch(pb.WatchRequest()):
        seen += told(message)
        done = seen[-1][1] + 1
        story.commit(*range(done, min(done + 2, 8)))
    assert seen == ids(range(8))


async def test_all_who_watch_get_the_same_bytes(story: Story) -> None:
    story.commit(0, 1)
    story.end = 2

    async def watch() -> list[bytes]:
        return [message async for message in story.subscriptions.watch(pb.WatchRequest())]

    watchers = [asyncio.create_task(watch()) for _ in range(5)]
    async with asyncio.timeout(WAIT_S):
        while story.iterations.last < 1:
            await asyncio.sleep(0)
        story.commit(2)
        first, *others = await asyncio.gather(*watchers)
    assert [each for message in first for each in told(message)] == ids(range(3))
    assert all(b"".join(other) == b"".join(first) for other in others)


async def test_what_is_asked_for_too_early_comes_when_it_is_committed(story: Story) -> None:
    story.commit(0)
    story.end = 4
    async with (
        asyncio.timeout(WAIT_S),
        aclosing(
            story.subscriptions.watch(pb.WatchRequest(from_iteration=3, seen_term=1))
        ) as messages,
    ):
        coming = asyncio.ensure_future(anext(messages))
        for number in range(1, 5):
            while story.iterations.last < number - 1:
                await asyncio.sleep(0)
            story.commit(number)
        seen = told(await coming) + [each async for message in messages for each in told(message)]
    assert seen == ids([3, 4])


async def test_a_later_term_supersedes_for_those_who_watch_and_those_who_come(
    story: Story,
) -> None:
    story.commit(*range(6))
    async with (
        asyncio.timeout(WAIT_S),
        aclosing(story.subscriptions.watch(pb.WatchRequest())) as messages,
    ):
        assert told(await anext(messages)) == ids(range(6))
        story.resume()
        story.commit(3)  # repeated from the journal, under its old term
        story.commit(4, term=2)
        assert told(await anext(messages)) == ids([4], term=2)
    assert await story.seen() == [*ids(range(4)), *ids([4], term=2)]


async def test_who_goes_on_after_a_break_hears_only_what_is_new_or_superseded(
    story: Story,
) -> None:
    story.commit(*range(6))
    assert await story.seen(from_iteration=6, seen_term=1) == []
    story.resume()
    story.commit(4, 5, 6, term=2)
    assert await story.seen(from_iteration=6, seen_term=1) == ids([4, 5, 6], term=2)
    assert await story.seen(from_iteration=6, seen_term=2) == ids([6], term=2)


async def test_who_comes_before_a_condemned_iteration_is_committed_again_does_not_hear_of_it(
    story: Story,
) -> None:
    story.commit(*range(6))
    assert await story.seen() == ids(range(6))
    story.sink.write(Condemnation(condemned=4, term=2))
    assert await story.seen() == ids(range(4))
    assert await story.seen(from_iteration=6, seen_term=1) == []
    story.resume()
    story.commit(4, term=2)
    assert await story.seen(from_iteration=6, seen_term=1) == ids([4], term=2)


async def test_who_reads_too_slowly_loses_iterations_and_is_told_how_many(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servicer, "BEHIND", 10)
    story.commit(0)
    async with (
        asyncio.timeout(WAIT_S),
        aclosing(story.subscriptions.watch(pb.WatchRequest())) as messages,
    ):
        assert told(await anext(messages)) == ids([0])
        story.commit(1)
        assert told(await anext(messages)) == ids([1])  # it has caught up, and now stops reading
        story.commit(*range(2, 20))
        assert len(await story.seen()) == 20
        late = pb.WatchResponse.FromString(await anext(messages))
        assert (late.lost, [each.iteration for each in late.iterations]) == (17, [19])
        story.commit(20)
        after = pb.WatchResponse.FromString(await anext(messages))
        assert (after.lost, [each.iteration for each in after.iterations]) == (0, [20])


async def test_a_long_past_comes_in_pieces_of_limited_size(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.commit(*range(50))
    size = len(_data(0))
    monkeypatch.setattr(module, "PIECE_BYTES", 7 * size)
    messages = [each async for each in story.subscriptions.watch(pb.WatchRequest(until_now=True))]
    assert max(map(len, messages)) <= 7 * size
    assert [each for message in messages for each in told(message)] == ids(range(50))
    monkeypatch.setattr(module, "PIECE_BYTES", 1)
    assert await story.seen() == ids(range(50))


async def test_nothing_is_read_without_subscribers(story: Story) -> None:
    story.commit(0)
    assert await story.seen() == ids([0])
    story.commit(1)
    await story.subscriptions.close("the controller is stopping")
    assert (story.iterations.last, len(asyncio.all_tasks())) == (0, 1)


async def test_what_a_full_disk_did_not_take_is_told_once_there_is_room(story: Story) -> None:
    story.commit(*range(5))
    with no_room_beyond(len(_data(0)) + 7), pytest.raises(StorageFailed, match="cannot write"):
        await story.seen()
    assert await story.seen() == ids(range(5))
    story.commit(5)
    assert await story.seen() == ids(range(6))


async def test_subscriptions_end_as_the_controller_does_on_a_full_disk(story: Story) -> None:
    story.commit(0)
    messages = story.subscriptions.watch(pb.WatchRequest())
    assert told(await anext(messages)) == ids([0])
    story.commit(1)
    with no_room_beyond(len(_data(0)) + 7):
        await story.subscriptions.close("the disk is full")
    with pytest.raises(ServiceLost, match="the disk is full"):
        await anext(messages)


async def test_those_who_watch_are_told_when_the_controller_stops(story: Story) -> None:
    story.commit(0)
    messages = story.subscriptions.watch(pb.WatchRequest())
    assert told(await anext(messages)) == ids([0])
    async with asyncio.timeout(WAIT_S):
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        await story.subscriptions.close("the controller is stopping")
        with pytest.raises(ServiceLost, match="the controller is stopping"):
            await waiting


async def test_subscriptions_of_a_finished_run_end_well_however_soon_the_controller_stops(
    story: Story,
) -> None:
    story.commit(0)
    messages = story.subscriptions.watch(pb.WatchRequest())
    assert told(await anext(messages)) == ids([0])
    async with asyncio.timeout(WAIT_S):
        rest = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)  # it waits for a renewal
        story.commit(1)
        story.end = 1
        await story.subscriptions.close("the controller is stopping")
        assert told(await rest) == ids([1])
        assert [message async for message in messages] == []
