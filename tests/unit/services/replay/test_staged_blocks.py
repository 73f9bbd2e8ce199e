"""Blocks over a real server: staged by collectors, and stored once the controller accepts them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank.common.errors import InvalidContribution, NotFound, Overloaded, StaleTerm
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.replay_client import ReplayClient, Unstaged
from fullrank.replay.limits import APPEND_BYTES
from fullrank.replay.staging import Grant, judged
from fullrank_replay import appends

from .replay_service import RUN_TERM, Replay, drawn, rows, sample, serving

GRANT = Grant(most_rows=4, episodes=None)


@asynccontextmanager
async def stager(replay: Replay, run_term: RunTerm = RUN_TERM) -> AsyncIterator[ReplayClient]:
    """A collector's client."""
    client = ReplayClient(replay.address, deadline_s=WAIT_S)
    client.under(run_term)
    try:
        yield client
    finally:
        await client.close()


async def stage(client: ReplayClient, block: int, data: FloatArray, iteration: int = 0) -> bytes:
    """Stage a block of one episode; returns its digest."""
    await client.stage(iteration, block, data, np.array([len(data)]))
    return judged(data, [len(data)], None)


async def test_accepted_blocks_lie_in_their_order_and_may_be_accepted_again(replay: Replay) -> None:
    await replay.client.grant(0, range(2), GRANT)
    async with stager(replay) as client:
        second = await stage(client, 1, rows(2, first=4))
        first = await stage(client, 0, rows(4))
    assert replay.head == 0
    for _ in range(2):
        assert await replay.client.accept(0, 0, [first, second], rows=6) is None
        assert replay.head == 6
    wanted = sample(head=6)
    assert np.array_equal(await drawn(replay.client, wanted), rows(6)[wanted.positions()])


async def test_while_a_block_is_missing_none_is_stored(replay: Replay) -> None:
    await replay.client.grant(0, range(2), GRANT)
    async with stager(replay) as client:
        first = await stage(client, 0, rows(4))
        missing = await replay.client.accept(0, 0, [first, bytes(16)], rows=6)
        assert missing == Unstaged([1], granted=True, head=0)
        assert replay.head == 0
        second = await stage(client, 1, rows(2, first=4))
    assert await replay.client.accept(0, 0, [first, second], rows=6) is None


async def test_free_blocks_are_accepted_one_by_one_and_rows_of_a_part_are_discarded(
    replay: Replay,
) -> None:
    own = RunTerm(RUN_TERM.run, RUN_TERM.term + 1, 7)  # the same controller may open it again
    await replay.client.open_table(row_size=3, capacity=10, head=0, run_term=own)
    for block in (7, 8):
        await replay.client.grant(1, range(block, block + 1), GRANT)
    async with stager(replay, own) as client:
        later = await stage(client, 8, rows(2), iteration=1)
    assert await replay.client.accept(1, 0, [later], rows=2, first=8) is None
    missing = await replay.client.accept(1, 2, [bytes(16)], rows=4, first=7)
    assert missing == Unstaged([7], granted=True, head=2)
    assert await replay.client.truncate(1) == (0, 1)
    gone = await replay.client.accept(1, 1, [bytes(16)], rows=4, first=7)
    assert gone == Unstaged([7], granted=False, head=1)


async def test_the_grant_of_a_block_of_no_rows_ends_as_that_of_others(replay: Replay) -> None:
    for block in (7, 8):
        await replay.client.grant(1, range(block, block + 1), GRANT)
    async with stager(replay) as client:
        later = await stage(client, 8, rows(2), iteration=1)
    assert await replay.client.accept(1, 0, [], rows=0, first=7) is None
    assert await replay.client.accept(1, 0, [later], rows=2, first=8) is None
    gone = await replay.client.accept(1, 2, [bytes(16)], rows=4, first=7)
    assert gone == Unstaged([7], granted=False, head=2)


async def test_without_a_grant_nothing_is_staged_and_the_controller_learns_of_it(
    replay: Replay,
) -> None:
    async with stager(replay) as client:
        with pytest.raises(NotFound, match="block 0 of iteration 0 is not granted"):
            await stage(client, 0, rows(4))
    assert await replay.client.accept(0, 0, [bytes(16)], rows=4) == Unstaged(
        [0], granted=False, head=0
    )


async def test_a_later_term_ends_grants_and_what_was_staged(replay: Replay) -> None:
    await replay.client.grant(0, range(2), GRANT)
    later = RunTerm(RUN_TERM.run, RUN_TERM.term + 1)
    async with stager(replay) as client, stager(replay, later) as other:
        first = await stage(client, 0, rows(4))
        await replay.client.open_table(row_size=3, capacity=10, head=0, run_term=later)
        with pytest.raises(StaleTerm):
            await stage(client, 0, rows(4))
        with pytest.raises(NotFound):
            await stage(other, 0, rows(4))
    assert await replay.client.accept(0, 0, [first], rows=4) == Unstaged([0], granted=False, head=0)


async def test_rows_beyond_the_grant_and_rows_that_are_not_finite_are_refused(
    replay: Replay,
) -> None:
    await replay.client.grant(0, range(2), GRANT)
    wrong = rows(4)
    wrong[1, 2] = np.inf
    async with stager(replay) as client:
        with pytest.raises(InvalidContribution, match="makes 5 rows, and 4 are granted"):
            await stage(client, 0, rows(5))
        with pytest.raises(InvalidContribution, match=r"rows\[1\]\[2\] is inf"):
            await stage(client, 0, wrong)


async def test_no_more_blocks_come_at_a_time_than_there_is_room_for(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appends, "STREAMS", 0)
    await replay.client.grant(0, range(2), GRANT)
    async with stager(replay) as client:
        with pytest.raises(Overloaded, match="0 blocks come already"):
            await stage(client, 0, rows(4))


async def test_a_block_larger_than_an_append_is_stored_in_several() -> None:
    row_size = 1000
    count = APPEND_BYTES // (4 * row_size) + 1
    async with serving(row_size=row_size, capacity=count) as service:
        await service.client.grant(0, range(1), Grant(most_rows=count, episodes=None))
        data = rows(count, row_size=row_size)
        async with stager(service) as client:
            digest = await stage(client, 0, data)
        assert await service.client.accept(0, 0, [digest], rows=count) is None
        wanted = sample(head=count, size=16)
        got = await drawn(service.client, wanted, row_size=row_size)
    assert np.array_equal(got, data[wanted.positions()])
