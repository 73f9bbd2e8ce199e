"""A run in one process, against its reference and beside services, without a command line."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.integration.cluster import reference_digests, resolved

from fullrank.common.errors import EnvironmentFailed, RunDirectoryInUse
from fullrank.config.layers import Resolved
from fullrank.environments import Step
from fullrank.host.process import Launch
from fullrank.host.run_directory import lock_replay
from fullrank.replay.samplers import Sample
from fullrank.runs.events import Acknowledged, Assigned
from fullrank.runs.record import IterationRecord, read_records
from fullrank.training.episodes import Episodes
from fullrank.wiring.training import updates_of
from fullrank_controller.local import server
from fullrank_controller.local.computation import Computation, ComputedRound
from fullrank_controller.local.server import serve

pytestmark = pytest.mark.integration


async def run(run_dir: Path, settings: Resolved) -> list[IterationRecord]:
    """Run to the end; the committed iterations."""
    launch = Launch(resolved=settings, run_dir=run_dir, until_finished=True)
    assert await serve(launch, run_dir, asyncio.Event())
    updates = updates_of(settings.config, settings.problem())
    assert violations(read_history(run_dir, updates=updates)) == []
    return read_records(run_dir / "metrics.jsonl")


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


async def test_a_table_that_a_replay_service_holds_is_left_alone(tmp_path: Path) -> None:
    with lock_replay(tmp_path / "replay"), pytest.raises(RunDirectoryInUse, match="replay service"):
        await run(tmp_path, resolved())


CUT = ("iterations=8", "collect.warmup=64", "environment.copies=4", "checkpoint.every=100")


async def test_a_run_that_is_stopped_while_it_plays_ahead_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = resolved(*CUT, "collect.lag=1")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    compute = Computation.compute

    def stopped(
        self: Computation, sample: Sample, check_cancelled: Callable[[], None]
    ) -> ComputedRound:
        if sample.iteration == 3 and not stop.is_set():
            loop.call_soon_threadsafe(stop.set)
            while True:
                check_cancelled()
        return compute(self, sample, check_cancelled)

    monkeypatch.setattr(Computation, "compute", stopped)
    launch = Launch(resolved=settings, run_dir=tmp_path, until_finished=True)
    assert not await serve(launch, tmp_path, stop)
    assert len(read_records(tmp_path / "metrics.jsonl")) == 3
    records = await run(tmp_path, settings)
    assert [record.update_digest for record in records] == reference_digests(settings.config)


@pytest.mark.parametrize("lag", [0, 1])
async def test_a_run_whose_environment_fails_within_a_collection_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: int
) -> None:
    settings = resolved(*CUT, "collect.steps=5", f"collect.lag={lag}")
    advance, left = Episodes.advance_packed, [4 * 5 + 3]  # the third step of collection 4

    def failing(self: Episodes, *arguments: Any, **named: Any) -> Step:
        left[0] -= len(self.ended) == 4  # the warm-up has other copies
        if left[0] == 0:
            raise EnvironmentFailed("environment: out of memory")
        return advance(self, *arguments, **named)

    monkeypatch.setattr(Episodes, "advance_packed", failing)
    with pytest.raises(EnvironmentFailed, match="out of memory"):
        await run(tmp_path, settings)
    assert 0 < len(read_records(tmp_path / "metrics.jsonl")) < settings.config.iterations
    records = await run(tmp_path, settings)
    assert [record.update_digest for record in records] == reference_digests(settings.config)
