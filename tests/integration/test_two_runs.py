"""Runs share a replay service and touch nothing of each other, and outlast its absence."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.fakes import Fault
from tests.integration.cluster import Cluster, reference_digests, resolved
from tests.waiting import WAIT_S

from fullrank.common.errors import ConfigError
from fullrank.replay.mapped_table import TableFile
from fullrank.replay.store import table_file
from fullrank.runs.identity import run_of
from fullrank.runs.snapshot import REPLAY
from fullrank.v1 import controller_pb2 as pb

pytestmark = pytest.mark.integration

UNCODED = ("code.name=uncoded", "learners=3")


@asynccontextmanager
async def shared(tmp_path: Path, *overrides: str) -> AsyncIterator[tuple[Cluster, ...]]:
    """A replay service in a directory of its own, and two runs that dial it."""
    address = f"replay.address={free_address()}"
    settings = [resolved(*UNCODED, address, *overrides, f"seed={seed}") for seed in (0, 1, 7)]
    names = ("service", "a", "b")
    service, a, b = (
        Cluster(tmp_path / name, each) for name, each in zip(names, settings, strict=True)
    )
    async with service, a, b:
        yield service, a, b


async def in_its_second_round(cluster: Cluster) -> asyncio.Event:
    """Start a run that holds its second round open; returns what lets it go on."""
    cluster.controller()
    slow, _ = await cluster.fake(Fault.STALL, at=1)
    cluster.learners(2)
    await asyncio.wait_for(slow.assigned.wait(), WAIT_S)
    return slow.release


async def test_a_second_run_on_the_same_replay_service_is_served_apart(tmp_path: Path) -> None:
    """Case two_runs_one_replay: the second run deleted the first one's rows and ended it."""
    async with shared(tmp_path) as (service, a, b):
        service.replay()
        go_on = await in_its_second_round(a)
        b.controller()
        b.learners(3)
        theirs = await b.finished()
        go_on.set()
        ours = await a.finished()
    assert (ours.term, list(ours.caveats)) == (theirs.term, list(theirs.caveats)) == (1, [])
    for cluster in (a, b):
        assert cluster.digests() == reference_digests(cluster.config)
        table = TableFile(table_file(service.run_dir / REPLAY, run_of(cluster.run_dir)))
        assert (table.tail, table.head) == (0, 64 + 4 * 2 * 5)  # warm-up and four iterations


async def test_a_run_that_comes_back_after_another_one_finds_its_own_table(tmp_path: Path) -> None:
    """Case two_runs_again: it took the table back with the other one's rows, and said `exact`."""
    async with shared(tmp_path) as (service, a, b):
        replay = service.replay()
        go_on = await in_its_second_round(a)
        for ended in list(a.services):
            await ended.end()
        go_on.set()
        b.controller()
        b.learners(3)
        await b.finished()
        await replay.end()
        service.replay()  # and so does a service that was started again
        a.controller()
        a.learners(3)
        status = await a.finished()
    assert (status.term, list(status.caveats)) == (2, [])
    assert a.digests() == reference_digests(a.config)
    assert b.digests() == reference_digests(b.config)


async def test_a_copy_beside_its_original_is_served_apart(tmp_path: Path) -> None:
    """It is another run, without the rows, which stay in the service: that is a caveat."""
    async with shared(tmp_path) as (service, a, _):
        service.replay()
        go_on = await in_its_second_round(a)
        copy = Cluster(tmp_path / "copy", a.settings)
        async with copy:
            shutil.copytree(a.run_dir, copy.run_dir, ignore=shutil.ignore_patterns("lock"))
            copy.controller()
            copy.learners(3)
            theirs = await copy.finished()
        go_on.set()
        ours = await a.finished()
    assert (ours.term, list(ours.caveats)) == (1, [])
    assert a.digests() == reference_digests(a.config)
    [caveat] = theirs.caveats
    assert caveat.startswith("replay lost rows before iteration 1: ")
    assert [record.caveats for record in copy.records()] == [(), *[(caveat,)] * 3]


async def test_a_run_beyond_the_limit_is_refused_by_name_and_the_first_one_goes_on(
    tmp_path: Path,
) -> None:
    async with shared(tmp_path, f"replay.total_bytes={9 * 2**20}") as (service, a, b):
        service.replay()
        go_on = await in_its_second_round(a)
        refused = b.controller()
        with pytest.raises(ConfigError, match=r"1 tables of 1 runs take .* replay\.total_bytes"):
            await asyncio.wait_for(refused.task, WAIT_S)
        refused.stop.set()
        go_on.set()
        await a.finished()
    assert a.digests() == reference_digests(a.config)


async def stalled(cluster: Cluster) -> None:
    """Wait until a run says that it waits for replay."""
    status = await cluster.status_when(
        lambda status: status.state == pb.RUN_STATE_STALLED, what="it says that it waits"
    )
    assert status.message.startswith("waiting for replay: replay 127.0.0.1:")


async def test_a_run_outlasts_the_absence_of_replay(tmp_path: Path) -> None:
    """It says so after `replay.deadline_s` and goes on whenever replay is back."""
    async with shared(tmp_path, "replay.deadline_s=1.0") as (service, a, _):
        replay = service.replay()
        go_on = await in_its_second_round(a)
        await replay.end()
        go_on.set()  # when the round ends, the next one needs replay
        await stalled(a)
        service.replay()
        status = await a.finished()
    assert (status.term, list(status.caveats), status.message) == (1, [], "4 iterations committed")
    assert a.digests() == reference_digests(a.config)
