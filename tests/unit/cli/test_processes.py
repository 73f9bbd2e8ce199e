"""Services as child processes: what a parent says of one that has ended."""

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
from tests.waiting import WAIT_S

from fullrank.cli.processes import Service
from fullrank.common.errors import ConfigError, ServiceLost

Usage = namedtuple("Usage", "total used free")


def ended(tmp_path: Path, log: str, *, code: int) -> Service:
    """A service that ended with an exit code and left a log."""
    path = tmp_path / "controller.log"
    path.write_text(log)
    command = [sys.executable, "-S", "-c", f"raise SystemExit({code})"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE)
    process.wait(WAIT_S)
    assert process.stdin is not None
    return Service(name="controller", process=process, log=path, stdin=process.stdin)


def test_the_last_error_that_a_service_printed_is_its_parents(tmp_path: Path) -> None:
    log = "fullrank: first\nDEBUG\nfullrank: learners must be 1 or more\n"
    failure = ended(tmp_path, log, code=ConfigError.exit_code).failure()
    assert isinstance(failure, ConfigError)
    assert str(failure) == "learners must be 1 or more"


@pytest.mark.parametrize("log", ["", "INFO ready\n", "INFO ready\nfullrank: cannot wri"])
@pytest.mark.parametrize(("free", "told"), [(0, True), (4096, True), (2**30, False)])
def test_a_full_disk_that_took_no_error_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, log: str, free: int, told: bool
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(2**40, 2**40 - free, free))
    failure = ended(tmp_path, log, code=1).failure()
    assert isinstance(failure, ServiceLost)
    reason = f": {os.strerror(errno.ENOSPC)}" if told else ""
    assert str(failure) == (
        f"the controller ended with status 1{reason}; see {tmp_path / 'controller.log'}"
    )
