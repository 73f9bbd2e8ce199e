"""Tables over a real server: sizes, versions, and one controller at a time."""

import re
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank import __version__
from fullrank.common.errors import (
    ConfigError,
    InvalidContribution,
    NotFound,
    StaleTerm,
    VersionMismatch,
)
from fullrank.common.types import RunTerm
from fullrank.net import replay_client
from fullrank.net.messages import run_term_message
from fullrank.net.replay_client import ReplayClient, close_run
from fullrank.replay.fence import Fence
from fullrank.replay.table import TABLE
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay import servicer

from .replay_service import CAPACITY, KEY, ROW_SIZE, RUN_TERM, Replay, append, drawn, rows, sample

VERSION = re.escape(__version__)
SUCCESSOR = RunTerm("run", 2)


async def reopened(client: ReplayClient, run_term: RunTerm, *, head: int) -> tuple[int, int]:
    return await client.open_table(
        row_size=ROW_SIZE, capacity=CAPACITY, head=head, run_term=run_term
    )


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


@pytest.mark.parametrize("field", ["head", "capacity"])
async def test_no_position_is_taken_beyond_what_a_table_can_reach(
    replay: Replay, field: str
) -> None:
    request = pb.OpenTableRequest(
        table=TABLE,
        row_size=ROW_SIZE,
        capacity=CAPACITY,
        run_term=run_term_message(SUCCESSOR),
        version=__version__,
    )
    setattr(request, field, 2**62)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await replay.stub.OpenTable(request, timeout=WAIT_S)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(2**62) in (raised.value.details() or "")
    assert await replay.client.append(0, rows(1)) == 1  # the term is not taken, either


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
    monkeypatch.setattr(replay_client, "__version__", "0.0.1")
    with pytest.raises(VersionMismatch, match=rf"version 0\.0\.1 of the controller .* {VERSION};"):
        await reopened(replay.client, SUCCESSOR, head=0)
    monkeypatch.setattr(replay_client, "__version__", __version__)
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
    with pytest.raises(StaleTerm, match="opened in term 2 of run run"):
        await reopened(other, RunTerm("run", term), head=0)
    await other.close()
    assert await replay.client.append(3, rows(1, first=3)) == 4  # nothing was forgotten


async def test_another_run_is_served_apart_and_touches_nothing_of_the_first_one(
    replay: Replay,
) -> None:
    await replay.client.append(0, rows(4))
    other = ReplayClient(replay.address, deadline_s=WAIT_S)
    assert await reopened(other, RunTerm("other", 9), head=0) == (0, 0)
    await other.append(0, rows(CAPACITY, first=70))
    await drawn(other, sample(head=CAPACITY))
    await other.append(CAPACITY, rows(2, first=90))  # evicts two of its own rows
    assert await replay.client.append(4, rows(1, first=4)) == 5
    ours, theirs = await drawn(replay.client, sample()), await drawn(other, sample(tail=2))
    assert np.array_equal(ours, rows(4)[sample().positions()])
    assert np.array_equal(theirs, rows(CAPACITY, first=70)[sample(tail=2).positions()])
    await other.close()


async def test_a_reader_names_its_run(replay: Replay) -> None:
    await replay.client.append(0, rows(4))
    reader = ReplayClient(replay.address, deadline_s=WAIT_S)
    with pytest.raises(InvalidContribution, match="run ''"):
        await drawn(reader, sample())
    reader.under(RunTerm("other", 1))
    with pytest.raises(NotFound, match="no table 'other/transitions'"):
        await drawn(reader, sample())
    reader.under(RunTerm("run", 7))  # a term is no key of reading
    assert len(await drawn(reader, sample())) == sample().size
    await reader.close()


async def test_of_controllers_of_one_term_the_first_one_is_served_and_may_ask_again(
    replay: Replay,
) -> None:
    first, second = RunTerm("run", 2, 11), RunTerm("run", 2, 12)
    await reopened(replay.client, first, head=0)
    assert await reopened(replay.client, first, head=0) == (0, 0)  # its answer was lost
    copy = ReplayClient(replay.address, deadline_s=WAIT_S)
    with pytest.raises(StaleTerm, match=r"a copy of this one.*start it again to go on here"):
        await reopened(copy, second, head=0)
    with pytest.raises(StaleTerm, match="by another controller"):
        await copy.append(0, rows(1))
    assert await replay.client.append(0, rows(3)) == 3
    assert await reopened(copy, RunTerm("run", 3, 12), head=3) == (0, 3)  # started again
    with pytest.raises(StaleTerm, match="a later one serves"):
        await replay.client.append(3, rows(1, first=3))
    await copy.close()


async def test_a_table_beyond_the_bytes_of_all_tables_is_a_failed_precondition(
    replay: Replay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay.store, "_most_bytes", 2**26)
    other = ReplayClient(replay.address, deadline_s=WAIT_S)
    with pytest.raises(
        ConfigError, match=r"1 tables of 1 runs take \d+ bytes of replay\.total_bytes"
    ):
        await other.open_table(
            row_size=ROW_SIZE, capacity=2**24, head=0, run_term=RunTerm("other", 1)
        )
    assert list(replay.store.tables) == [KEY]
    assert await replay.client.append(0, rows(3)) == 3
    await other.close()


async def test_the_service_ends_with_the_last_of_its_runs(replay: Replay) -> None:
    await reopened(replay.client, RunTerm("other", 1), head=0)
    await close_run(replay.address, RUN_TERM)
    assert not replay.servicer.ended.is_set()
    await close_run(replay.address, RunTerm("other", 1))
    assert replay.servicer.ended.is_set()


def test_a_service_that_is_started_again_knows_which_of_its_runs_have_ended(
    tmp_path: Path,
) -> None:
    fence = Fence(tmp_path)
    fence.raise_to(KEY, RUN_TERM)
    assert fence.open_runs == Fence(tmp_path).open_runs == {RUN_TERM.run}
    fence.close(KEY, RUN_TERM)
    assert fence.open_runs == Fence(tmp_path).open_runs == set()
    Fence(tmp_path).raise_to(KEY, SUCCESSOR)
    assert Fence(tmp_path).open_runs == {RUN_TERM.run}


async def test_only_the_controller_of_the_latest_term_ends_a_run(replay: Replay) -> None:
    await reopened(replay.client, SUCCESSOR, head=0)
    with pytest.raises(StaleTerm):
        await close_run(replay.address, RUN_TERM)
    assert not replay.servicer.ended.is_set()
    await close_run(replay.address, RunTerm("run", 3))  # it failed before it opened the table
    assert replay.servicer.ended.is_set()
