"""Tables over a real server: sizes, versions, and one controller at a time."""

import re
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank import __version__
from fullrank.common.errors import (
    StaleTerm,
    VersionMismatch,
)
from fullrank.common.types import RunTerm
from fullrank.replay import TABLE
from fullrank.replay.fence import Fence
from fullrank.rpc import replay_client
from fullrank.rpc.messages import run_term_message
from fullrank.rpc.replay_client import ReplayClient, close_run
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay import servicer

from .replay_service import CAPACITY, ROW_SIZE, RUN_TERM, Replay, append, drawn, rows, sample

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


async def test_another_run_cannot_end_the_service(replay: Replay) -> None:
    await reopened(replay.client, RunTerm("other", 1), head=0)  # the table is now of this run
    with pytest.raises(StaleTerm):
        await close_run(replay.address, RUN_TERM)
    assert not replay.servicer.ended.is_set()
    await close_run(replay.address, RunTerm("other", 1))
    assert not replay.servicer.ended.is_set()  # the first one may open it again


def test_a_service_that_is_started_again_knows_the_runs_of_its_tables(tmp_path: Path) -> None:
    Fence(tmp_path).raise_to(TABLE, RUN_TERM)
    assert Fence(tmp_path).runs == {RUN_TERM.run}


async def test_only_the_controller_of_the_latest_term_ends_a_run(replay: Replay) -> None:
    await reopened(replay.client, SUCCESSOR, head=0)
    with pytest.raises(StaleTerm):
        await close_run(replay.address, RUN_TERM)
    assert not replay.servicer.ended.is_set()
    await close_run(replay.address, RunTerm("run", 3))  # it failed before it opened the table
    assert replay.servicer.ended.is_set()
