"""A run in one process, against its reference and beside services, without a command line."""

import asyncio
from pathlib import Path

import pytest
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.integration.cluster import reference_digests, resolved

from fullrank.common.errors import RunDirectoryInUse
from fullrank.config.layers import Resolved
from fullrank.host.process import Launch
from fullrank.host.run_directory import lock_replay
from fullrank.runs.events import Acknowledged, Assigned
from fullrank.runs.record import IterationRecord, read_records
from fullrank.wiring.training import updates_of
from fullrank_controller.local import server
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
