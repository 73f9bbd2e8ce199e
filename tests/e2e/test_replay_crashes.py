"""kill -9 of the replay service while its writer continues: no acknowledged row is lost."""

import asyncio
import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tests.addresses import free_address
from tests.e2e.commands import settings
from tests.waiting import WAIT_S

from fullrank.common.failpoints import VARIABLE
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.ring_file import RingFile
from fullrank.replay.table import TABLE, Table

pytestmark = pytest.mark.e2e

ROW_SIZE, CAPACITY, BATCH = 2**14, 20, 15
"""Sizes at which appends often wrap around the end of the ring."""
RUN_TERM = RunTerm("run", 1)
POINTS = ("checks.written", "rows.written", "rows.synced", "rows.stored")


class Writer:
    """Appends row after row, through failures of the service.

    Attributes:
        acknowledged: Head after the last acknowledged append.
    """

    def __init__(self, address: str) -> None:
        self._client = ReplayClient(address, deadline_s=WAIT_S)
        self._client.under(RUN_TERM)
        self.acknowledged = 0

    async def write(self) -> None:
        while True:
            rows = rows_of(self.acknowledged, BATCH)
            self.acknowledged = await self._client.append(self.acknowledged, rows)

    async def close(self) -> None:
        await self._client.close()


def rows_of(first: int, count: int) -> FloatArray:
    """Row p holds p throughout."""
    positions = np.arange(first, first + count, dtype=np.float32)
    return np.repeat(positions[:, None], ROW_SIZE, axis=1)


def serve(run_dir: Path, address: str, *, mode: str, failpoint: str) -> "subprocess.Popen[str]":
    """Start the service without a fork that runs Python: this process has threads in gRPC."""
    options = settings(f"replay.address={address}", f"replay.acknowledge={mode}")
    words = ["serve", "replay", "--run-dir", str(run_dir), *options]
    return subprocess.Popen(
        [sys.executable, "-m", "fullrank", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, VARIABLE: failpoint},
    )


@pytest.mark.parametrize(
    ("mode", "counts"),
    [
        ("memory", (12,)),
        pytest.param("memory", (2, 12), marks=pytest.mark.thorough),
        ("fsync", (7,)),
    ],
)
async def test_a_replay_service_killed_again_and_again_has_all_that_it_acknowledged(
    tmp_path: Path, mode: str, counts: tuple[int, ...]
) -> None:
    """Kill the service four times or eight, also where each append is synced first."""
    path = tmp_path / "replay" / RUN_TERM.run / f"{TABLE}.table"
    RingFile.create(path, row_size=ROW_SIZE, capacity=CAPACITY, sync=True)
    # A client that dials its own unused address may be given that very port.
    address = free_address().replace("127.0.0.1", "127.0.0.2")
    writer = Writer(address)
    writing = asyncio.create_task(writer.write())
    for point, count in product(POINTS, counts):
        service = serve(tmp_path, address, mode=mode, failpoint=f"{point}:{count}")
        _, error = await asyncio.to_thread(service.communicate, timeout=WAIT_S)
        assert service.returncode == -signal.SIGKILL, error
        assert_held(path, writer.acknowledged)
    writing.cancel()
    await asyncio.wait({writing})
    await writer.close()
    assert writer.acknowledged > 0


def assert_held(path: Path, acknowledged: int) -> None:
    """A copy of the file, opened as by the next service, holds every acknowledged row."""
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    storage = RingFile(copy, sync=False)
    table = Table(storage, capacity=CAPACITY)
    assert table.head >= acknowledged
    assert table.tail == max(0, table.head - CAPACITY)
    positions = np.arange(table.tail, table.head)
    np.testing.assert_array_equal(table.gather(positions), rows_of(table.tail, len(positions)))
