"""A full disk stops or blocks its users with a clear message; with space again, nothing is lost."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    digests,
    end,
    fullrank,
    kill_all,
    settings,
    shorten,
    start,
)
from tests.e2e.test_replay_crashes import (
    BATCH,
    CAPACITY,
    ROW_SIZE,
    RUN_TERM,
    assert_held,
    rows_of,
    serve,
)
from tests.waiting import WAIT_S, wait_until

from fullrank.common.errors import FullrankError, ServiceLost
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.ring_file import RingFile
from fullrank.replay.table import TABLE

pytestmark = pytest.mark.e2e

FULL = "No space left on device"


class Disk:
    """A small file system with a file that fills it."""

    def __init__(self, root: Path) -> None:
        self.root, self._ballast = root, root / "ballast"

    def fill(self, *, leaving_bytes: int = 0) -> None:
        """Fill the disk up to the given free space."""
        with self._ballast.open("wb", buffering=0) as file:
            space = os.statvfs(self.root)
            file.write(bytes(space.f_bavail * space.f_frsize - leaving_bytes))

    def empty(self) -> None:
        """Free the space."""
        self._ballast.unlink()


@contextmanager
def small_disk(root: Path) -> Iterator[Disk]:
    """A small file system at a folder; whatever runs there ends with it."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(root)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("needs root and the right to mount a small file system")
    try:
        yield Disk(root)
    finally:
        kill_all(root)
        subprocess.run(["umount", "--lazy", str(root)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path) as disk:
        yield disk


def test_a_run_ends_when_its_disk_is_full_and_resumes_to_the_same_bits(disk: Disk) -> None:
    run_dir = disk.root / "run"
    slow = settings(ENDLESS, "compute.emulate_unit_s=0.1", "replay.deadline_s=10.0")
    training = start("train", "--run-dir", str(run_dir), *slow)
    wait_until(lambda: committed(run_dir) > 2, what="three iterations")
    disk.fill()
    ended = end(training)
    assert ended.code in (FullrankError.exit_code, ServiceLost.exit_code)
    assert FULL in ended.error
    assert "Traceback" not in ended.error
    before = digests(run_dir)

    disk.empty()
    shorten(run_dir, iterations=len(before) + 5)
    resumed = fullrank("run", "resume", "--attach", str(run_dir))
    assert (resumed.code, resumed.error) == (0, "")
    assert digests(run_dir) == centralised(run_dir)
    assert digests(run_dir)[: len(before)] == before


async def test_replay_refuses_what_its_disk_does_not_take_and_goes_on_when_there_is_room(
    disk: Disk,
) -> None:
    path = disk.root / "replay" / RUN_TERM.run / f"{TABLE}.table"
    RingFile.create(path, row_size=ROW_SIZE, capacity=CAPACITY, sync=True)
    address = free_address()
    service = serve(disk.root, address, mode="fsync", failpoint="")
    writer, acknowledged = ReplayClient(address, deadline_s=WAIT_S), 0
    writer.under(RUN_TERM)
    acknowledged = await writer.append(0, rows_of(0, BATCH))
    disk.fill(leaving_bytes=2**20)
    hasty = ReplayClient(address, deadline_s=10.0)
    hasty.under(RUN_TERM)
    refused = ""
    while FULL not in refused:  # a service that is slow to answer is lost, too
        try:
            acknowledged = await hasty.append(acknowledged, rows_of(acknowledged, BATCH))
        except ServiceLost as error:
            refused = str(error)
    assert f"{TABLE}.table: {FULL}; make room" in refused
    writing = asyncio.create_task(writer.append(acknowledged, rows_of(acknowledged, BATCH)))
    disk.empty()
    acknowledged = await writing
    for client in (writer, hasty):
        await client.close()
    service.send_signal(signal.SIGKILL)
    assert await asyncio.to_thread(service.wait, WAIT_S) == -signal.SIGKILL
    assert_held(path, acknowledged)
