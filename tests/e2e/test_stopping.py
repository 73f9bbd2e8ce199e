"""A service that is told to stop several times ends once, and successfully."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tests.e2e.commands import kill_all, processes_of, settings, start
from tests.signals import holds
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.e2e

ANYWHERE = "127.0.0.1:0"


def begin(run_dir: Path, name: str, *extra: str) -> "subprocess.Popen[str]":
    addresses = [f"{each}={ANYWHERE}" for each in ("replay.listen", "sidecar.address")]
    words = ["serve", name, *settings(*addresses), "--run-dir", str(run_dir), *extra]
    with (run_dir / "log").open("w") as log:
        return start(*words, output=log)


def handles_sigterm(process: psutil.Process) -> bool:
    """True if the process has a handler of its own for SIGTERM."""
    return holds("SigCgt", signal.SIGTERM, process=process.pid)


def all_handle_sigterm(run_dir: Path, processes: int) -> bool:
    found = processes_of(run_dir)
    return len(found) == processes and all(map(handles_sigterm, found))


@pytest.mark.parametrize(
    ("name", "extra", "processes"),
    [("replay", [], 1), ("learner", ["--replicas", "2"], 3)],
)
def test_who_is_told_again_in_its_last_moments_ends_well(
    tmp_path: Path, name: str, extra: list[str], processes: int
) -> None:
    process = begin(tmp_path, name, *extra)
    try:
        wait_until(lambda: all_handle_sigterm(tmp_path, processes), what=f"{name} is there")
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
        assert process.returncode == 0
    finally:
        kill_all(tmp_path)


FORKED = """
import os, signal, sys
from pathlib import Path
from fullrank.config import load
from fullrank.host.process import Launch
from fullrank_learner import server

fork = os.fork

def forked():
    child = fork()
    if child:
        {signal}
    return child

os.fork = forked
run_dir = Path(sys.argv[1])
sys.exit(server.main(Launch(resolved=load(environ={{}}), run_dir=run_dir, replicas=3)))
"""
"""A learner's supervisor that sends a signal after each fork."""


@pytest.mark.parametrize(
    "signalled", ["os.kill(os.getpid(), signal.SIGTERM)", "os.kill(child, signal.SIGTERM)"]
)
def test_a_signal_before_the_handlers_are_installed_ends_every_replica(
    tmp_path: Path, signalled: str
) -> None:
    """The supervisor, or each replica, is told to stop at once after it was forked."""
    script = FORKED.format(signal=signalled)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=log, stderr=log
        )
    try:
        assert process.wait(WAIT_S) == 0, (tmp_path / "log").read_text()
        wait_until(lambda: not processes_of(tmp_path), what="all replicas end")
    finally:
        kill_all(tmp_path)
