"""Clocks that are wrong, jump and drift: no deadline and no lease of a service uses them."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path

import pytest
from tests.e2e.commands import ENDLESS, centralised, committed, digests, kill_all, settings, start
from tests.faultlab.history import read_history
from tests.waiting import wait_until

from fullrank.runs.events import Left

pytestmark = pytest.mark.e2e

WRONG = ("+1h", "-1h", "-5s", "+0 x1.1")
"""Offsets and rates: an hour ahead or behind, some seconds behind, a tenth too fast."""
TURNS = len(WRONG)
SETTINGS = (
    ENDLESS,
    "learners=3",
    "code.name=uncoded",
    "controller.heartbeat_s=0.2",
    "controller.lost_after_s=1800.0",  # less than the clocks jump by
    "compute.emulate_unit_s=1.1",  # so that each jump is seen, in the midst of a round
)


class Clock:
    """A fake time of day for some processes; their monotonic clocks stay correct.

    Processes read it once a second: the library has no lock, and threads that read it at every call
    sooner or later end the process.

    Args:
        path: File with the offset and rate of the clock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.set(WRONG[0])

    def set(self, wrong: str) -> None:
        """Change the clock while the processes run."""
        scratch = self._path.with_suffix(".tmp")
        scratch.write_text(wrong)
        scratch.replace(self._path)

    @property
    def env(self) -> Mapping[str, str]:
        """Environment variables that give a process this clock."""
        library = files("libfaketime") / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            "FAKETIME_CACHE_DURATION": "0",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def ahead_s(clock: Clock) -> float:
    """Seconds by which the clock is ahead of this process's."""
    command = [sys.executable, "-c", "import time; print(time.time())"]
    told = subprocess.check_output(command, env={**os.environ, **clock.env})
    return float(told) - time.time()


@pytest.fixture
def clocks(tmp_path: Path) -> dict[str, Clock]:
    """A clock for each kind of service."""
    services = ("replay", "controller", "learner")
    clocks = {service: Clock(tmp_path / f"{service}.clock") for service in services}
    if ahead_s(clocks["replay"]) < 3000.0:
        pytest.skip("needs libfaketime, to change the time of day of one process")
    return clocks


def beyond(run_dir: Path, iteration: int) -> bool:
    """True if the iteration is committed."""
    return committed(run_dir) > iteration


def hours(log: Path) -> set[str]:
    """Days and hours in which lines were logged."""
    return {line[:13] for line in log.read_text().splitlines()}


def serve(name: str, run_dir: Path, clock: Clock) -> "subprocess.Popen[str]":
    words = ["--replicas", "3"] if name == "learner" else []
    options = [*settings(*SETTINGS), "--run-dir", str(run_dir), *words]
    with (run_dir / f"{name}.log").open("a") as log:
        return start("serve", name, *options, env=clock.env, output=log)


def test_clocks_that_jump_and_drift_change_no_bit_and_end_no_lease(
    tmp_path: Path, clocks: dict[str, Clock]
) -> None:
    try:
        services = [serve(name, tmp_path, clock) for name, clock in clocks.items()]
        for turn in range(TURNS):
            before = committed(tmp_path)
            for offset, clock in enumerate(clocks.values()):
                clock.set(WRONG[(turn + offset) % len(WRONG)])
            wait_until(partial(beyond, tmp_path, before + 1), what="a whole iteration")
        assert {service.poll() for service in services} == {None}
        log = tmp_path / "controller.log"
        wait_until(lambda: len(hours(log)) > 1, what="the log shows that the clock has jumped")
        noted = read_history(tmp_path).controller
        assert not [event for event in noted if isinstance(event, Left)]
    finally:
        kill_all(tmp_path)
    found = digests(tmp_path)
    assert found == centralised(tmp_path, iterations=len(found))
