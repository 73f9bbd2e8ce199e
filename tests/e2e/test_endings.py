"""A training that is told to stop, or loses a process to a signal, ends with a documented code."""

import os
import pty
import signal
import sys
from pathlib import Path

import pytest
from tests.e2e.commands import (
    centralised,
    committed,
    digests,
    end,
    fullrank,
    kill_all,
    processes_of,
    settings,
    start,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

THOROUGH = pytest.mark.thorough
SLOW = settings("iterations=12", "compute.emulate_unit_s=0.1")
ENDLESS = settings("iterations=100000", "compute.emulate_unit_s=0.1")
"""A run that ends only because it is told to, however late a busy machine tells it."""


def in_a_terminal(*words: str) -> tuple[int, int]:
    """Start ``fullrank words...`` in a terminal; returns its process and the terminal."""
    process, terminal = pty.fork()
    if not process:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
        os.execv(sys.executable, [sys.executable, "-m", "fullrank", *words])
    return process, terminal


@pytest.mark.parametrize("mode", [[], pytest.param(["--local"], marks=THOROUGH)])
def test_a_closed_terminal_leaves_a_run_that_resumes_to_the_same_bits(
    run_dir: Path, mode: list[str]
) -> None:
    process, terminal = in_a_terminal("train", "--run-dir", str(run_dir), *mode, *SLOW)
    try:
        wait_until(lambda: committed(run_dir) >= 3, what="three iterations")
        os.close(terminal)
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 130
        wait_until(lambda: not processes_of(run_dir), what="every process has ended")
    finally:
        kill_all(run_dir)
    assert 3 <= committed(run_dir) < 12
    assert (run_dir / "checkpoints" / f"{committed(run_dir) - 1:06d}").exists()
    assert fullrank("resume", str(run_dir)).code == 0
    assert digests(run_dir) == centralised(run_dir)


@pytest.mark.thorough
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
@pytest.mark.parametrize("mode", [[], ["--local"]])
def test_sigterm_and_an_impatient_user_end_every_process(
    run_dir: Path, mode: list[str], signals: list[signal.Signals]
) -> None:
    process = start("train", "--run-dir", str(run_dir), *mode, *ENDLESS)
    wait_until(lambda: committed(run_dir) >= 1, what="an iteration")
    for number in signals:
        process.send_signal(number)
    outcome = end(process)
    assert (outcome.code, outcome.error) == (130, "")
    wait_until(lambda: not processes_of(run_dir), what="every process has ended")


@pytest.mark.parametrize(
    "service",
    [
        "controller",
        *(pytest.param(name, marks=THOROUGH) for name in ("learner", "replay", "collector")),
    ],
)
def test_a_service_of_train_that_is_told_to_stop_ends_the_run_by_name(
    run_dir: Path, service: str
) -> None:
    options = [*ENDLESS, "--collectors", "1"] if service == "collector" else ENDLESS
    process = start("train", "--run-dir", str(run_dir), *options)
    wait_until(lambda: committed(run_dir) >= 1, what="an iteration")
    parent = next(each for each in processes_of(run_dir) if service in each.cmdline())
    parent.terminate()
    outcome = end(process)
    assert outcome.code == 9
    [line] = outcome.error.splitlines()
    assert line.startswith(f"fullrank: the {service} ended with status 0; see {run_dir}")
    assert processes_of(run_dir) == []
