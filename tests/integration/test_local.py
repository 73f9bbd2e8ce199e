"""A run in one process, against its reference and beside services, without a command line."""

import asyncio
from pathlib import Path

import pytest
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.integration.cluster import SUM, Cluster, centralised, reference_digests, resolved, tiny

from fullrank.common.errors import RunDirectoryInUse
from fullrank.config.layers import Resolved
from fullrank.host.process import Launch
from fullrank.host.run_directory import lock_replay
from fullrank.local import LocalRun
from fullrank.runs.events import Acknowledged, Assigned
from fullrank.runs.record import IterationRecord, read_records
from fullrank_controller.local import server
from fullrank_controller.local.server import serve

pytestmark = pytest.mark.integration

INDEPENDENT = (
    *("environment.name=ising", "algorithm.name=darl1n", "algorithm.data=independent"),
    *("code.name=mds", "learners=11", "algorithm.max_variance=0"),
)


async def run(run_dir: Path, settings: Resolved) -> list[IterationRecord]:
    """Run to the end; the committed iterations."""
    launch = Launch(resolved=settings, run_dir=run_dir, until_finished=True)
    assert await serve(launch, run_dir, asyncio.Event())
    assert violations(read_history(run_dir)) == []
    return read_records(run_dir / "metrics.jsonl")


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("collect.lag=1",),
        ("sampling.method=prioritised", "code.name=auto"),
        ("learners=3", "code.name=uncoded", "replay.acknowledge=fsync"),
    ],
    ids=str,
)
async def test_one_process_commits_the_reference(tmp_path: Path, overrides: tuple[str]) -> None:
    settings = resolved(*overrides)
    records = await run(tmp_path, settings)
    assert [record.update_digest for record in records] == reference_digests(settings.config)
    assert all(record.exact and record.received == (0,) for record in records)


async def test_playing_beside_computing_commits_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "usable_cores", lambda: 2)
    settings = resolved("iterations=12", "collect.warmup=600", "environment.copies=4")
    records = await run(tmp_path, settings)
    assert [record.update_digest for record in records] == reference_digests(settings.config)
    order = [
        event
        for event in read_history(tmp_path).controller
        if isinstance(event, Acknowledged | Assigned)
    ]
    beside = sum(isinstance(event, Assigned) for event in order[1::2])  # after the warm-up
    assert 0 < beside < settings.config.iterations  # some minibatches hold rows of their iteration


async def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    settings = resolved("iterations=2")
    assert await run(tmp_path, settings) == await run(tmp_path, settings)


async def test_sums_are_committed_without_a_code(tmp_path: Path) -> None:
    settings = tiny(*SUM, "code.name=fractional", "learners=3")
    records = await run(tmp_path, settings)
    digests, _ = centralised(settings.config)
    assert [record.update_digest for record in records] == digests


async def test_rows_with_samples_of_their_own_are_all_computed(tmp_path: Path) -> None:
    settings = resolved("iterations=2", *INDEPENDENT)
    records = await run(tmp_path, settings)
    reference = [each.variance for each in LocalRun(settings.config)]
    assert [record.variance for record in records] == reference  # of all rows, as J is all
    assert not any(record.exact for record in records)


async def test_a_table_that_a_replay_service_holds_is_left_alone(tmp_path: Path) -> None:
    with lock_replay(tmp_path / "replay"), pytest.raises(RunDirectoryInUse, match="replay service"):
        await run(tmp_path, resolved())


async def test_services_go_on_where_one_process_stopped(tmp_path: Path) -> None:
    short, whole = resolved("iterations=2"), resolved()
    begun = await run(tmp_path, short)
    async with Cluster(tmp_path, whole) as cluster:
        cluster.replay()
        cluster.controller()
        cluster.learners(4)
        await cluster.finished()
    records = read_records(tmp_path / "metrics.jsonl")
    assert records[:2] == begun
    assert [record.update_digest for record in records] == reference_digests(whole.config)
