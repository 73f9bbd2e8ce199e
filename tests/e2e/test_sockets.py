"""A local run speaks over unix sockets, which no other user of its host reaches."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.e2e.commands import ENDLESS, end, fullrank, settings, start
from tests.waiting import wait_until

from fullrank.runs.record import METRICS

pytestmark = pytest.mark.e2e

NOBODY = 65534
CONNECT = """
import os, socket, sys
os.setgid({nobody}); os.setuid({nobody})
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
"""


def announced(run_dir: Path) -> dict[str, str]:
    """Addresses of the services by name."""
    files = (run_dir / "services").glob("*.json")
    return {path.stem: json.loads(path.read_text())["address"] for path in files}


def sockets_of(run_dir: Path) -> list[Path]:
    return [Path(address.removeprefix("unix:")) for address in announced(run_dir).values()]


@contextmanager
def training(
    run_dir: Path, *words: str, env: dict[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """A run with a learner and a collector that has committed an iteration."""
    played = ("collectors.count=1", "collect.mode=keyed", "learners=2")
    options = settings(ENDLESS, *played)
    process = start("train", "--run-dir", str(run_dir), *options, *words, env=env)
    try:
        metrics = run_dir / METRICS
        wait_until(
            lambda: process.poll() is not None or (metrics.exists() and metrics.stat().st_size > 0),
            what="an iteration is committed",
        )
        assert process.poll() is None, end(process)
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        end(process)


def family(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


@pytest.mark.smoke
def test_no_port_is_open_and_no_other_user_connects(run_dir: Path) -> None:
    with training(run_dir) as process:
        assert set(announced(run_dir)) == {"controller", "monitor", "replay"}
        members = family(process)
        assert len(members) >= 7
        assert [each.net_connections("inet") for each in members] == [[]] * len(members)
        for path in sockets_of(run_dir):
            found = path.parent.lstat()
            assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o700, os.geteuid())
            assert path.is_socket()
            if os.geteuid() == 0:
                command = [sys.executable, "-c", CONNECT.format(nobody=NOBODY), str(path)]
                refused = subprocess.run(command, capture_output=True, text=True, check=True)
                assert refused.stdout == "PermissionError\n", refused
        status = fullrank("run", "status", str(run_dir), "--json")
        assert (status.code, json.loads(status.output)["state"]) == (0, "RUNNING")
        shown = fullrank("run", "status", str(run_dir)).output
        assert "shared" in shown  # memory, as within one host
        left = sockets_of(run_dir)
    assert announced(run_dir) == {}
    assert [path.parent for path in left if path.parent.exists()] == []
