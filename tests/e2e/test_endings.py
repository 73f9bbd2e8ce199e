"""A training that is told to stop, or loses a process to a signal, ends with a documented code."""

import os
import pty
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    digests,
    end,
    fullrank,
    kill_all,
    processes_of,
    settings,
    shorten,
    start,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

SLOW = settings(ENDLESS, "compute.emulate_unit_s=0.1")


def in_a_terminal(*words: str) -> tuple[int, int]:
    """Start ``fullrank words...`` in a terminal; returns its process and the terminal."""
    process, terminal = pty.fork()
    if not process:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
        os.execv(sys.executable, [sys.executable, "-m", "fullrank", *words])
    os.set_blocking(terminal, False)
    return process, terminal


def has_shown(terminal: int) -> bool:
    """True, once all that was written to the terminal is taken: its writer waits for a reader."""
    with suppress(BlockingIOError):
        while os.read(terminal, 2**16):
            pass
    return True


@pytest.mark.thorough
def test_a_closed_terminal_leaves_a_run_that_resumes_to_the_same_bits(run_dir: Path) -> None:
    process, terminal = in_a_terminal("train", "--run-dir", str(run_dir), *SLOW)
    try:
        wait_until(lambda: has_shown(terminal) and committed(run_dir) >= 3, what="three iterations")
        os.close(terminal)
        _, status = os.waitpid(process, 0)
        assert os.waitstatus_to_exitcode(status) == 130
        wait_until(lambda: not processes_of(run_dir), what="every process has ended")
    finally:
        kill_all(run_dir)
    before = committed(run_dir)
    assert before >= 3
    assert (run_dir / "checkpoints" / f"{before - 1:06d}").exists()
    shorten(run_dir, iterations=before + 3)
    assert fullrank("run", "resume", "--attach", str(run_dir)).code == 0
    assert digests(run_dir) == centralised(run_dir)


@pytest.mark.thorough
@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGINT]])
def test_sigterm_and_an_impatient_user_end_every_process(
    run_dir: Path, signals: list[signal.Signals]
) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW)
    wait_until(lambda: committed(run_dir) >= 1, what="an iteration")
    for number in signals:
        process.send_signal(number)
    outcome = end(process)
    assert (outcome.code, outcome.error) == (130, "")
    wait_until(lambda: not processes_of(run_dir), what="every process has ended")


def test_a_service_of_train_that_is_told_to_stop_ends_the_run_by_name(run_dir: Path) -> None:
    process = start("train", "--run-dir", str(run_dir), *SLOW)
    wait_until(lambda: committed(run_dir) >= 1, what="an iteration")
    controller = next(each for each in processes_of(run_dir) if "controller" in each.cmdline())
    controller.terminate()
    outcome = end(process)
    assert outcome.code == 9
    [line] = outcome.error.splitlines()
    assert line.startswith(f"fullrank: the controller ended with status 0; see {run_dir}")
    assert processes_of(run_dir) == []
