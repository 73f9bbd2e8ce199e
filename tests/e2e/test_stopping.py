"""A service that is told to stop several times ends once, and successfully."""

import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from tests.e2e.commands import kill_all, processes_of, settings, start
from tests.signals import holds
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

ANYWHERE = "127.0.0.1:0"


def begin(run_dir: Path, name: str, *extra: str) -> "subprocess.Popen[str]":
    addresses = [f"{each}={ANYWHERE}" for each in ("replay.listen", "sidecar.address")]
    words = ["serve", name, *settings(*addresses), "--run-dir", str(run_dir), *extra]
    with (run_dir / "log").open("w") as log:
        return start(*words, output=log)


def heeds(process: psutil.Process) -> bool:
    """True if the process has a handler of its own for SIGTERM."""
    return holds("SigCgt", signal.SIGTERM, process=process.pid)


def all_heed(run_dir: Path, processes: int) -> bool:
    found = processes_of(run_dir)
    return len(found) == processes and all(map(heeds, found))


@pytest.mark.parametrize(
    ("name", "extra", "processes"),
    [("replay", [], 1), ("straggler", [], 1), ("learner", ["--replicas", "2"], 3)],
)
def test_who_is_told_again_in_its_last_moments_ends_well(
    tmp_path: Path, name: str, extra: list[str], processes: int
) -> None:
    process = begin(tmp_path, name, *extra)
    try:
        wait_until(lambda: all_heed(tmp_path, processes), what=f"{name} is there")
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.returncode == 0
    finally:
        kill_all(tmp_path)
