"""A run that an earlier version began goes on under this one, once it is migrated."""

import asyncio
import shutil
from pathlib import Path

import pytest

from fullrank.cli.migrate import migrate
from fullrank.config import load
from fullrank.rpc.process import Launch
from fullrank.runs.record import read_records
from fullrank_controller.local.server import serve

pytestmark = pytest.mark.integration

RECORDED = Path(__file__).parents[1] / "golden" / "runs"


async def test_an_older_run_goes_on_where_it_stood(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.unpack_archive(RECORDED / "before_formats.zip", run)
    await asyncio.to_thread(migrate, run, apply=True)
    settings = load(run / "config.toml", environ={}, overrides=["iterations=6"])
    launch = Launch(resolved=settings, run_dir=run, until_finished=True)
    assert await serve(launch, run, asyncio.Event())
    records = read_records(run / "metrics.jsonl")
    assert [(record.iteration, record.term) for record in records] == [
        *((iteration, 1) for iteration in range(4)),
        *((iteration, 2) for iteration in range(4, 6)),
    ]
