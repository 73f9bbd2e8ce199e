"""A run is one of five states, by what its place says; on this host that is its directory."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import WAIT_S

from fullrank.cli import this_host
from fullrank.cli.objects import Condition, State, by_answer, by_ending, by_exit
from fullrank.cli.this_host import attached, condition_of
from fullrank.common.errors import EnvironmentFailed, FullrankError, Malformed, ServiceLost, Stuck
from fullrank.host.run_directory import lock_launch, trainer_of
from fullrank.net.status import RunState, RunStatus
from fullrank.runs.ending import OUTCOME, failed, finished, write_ending

FAILURE = EnvironmentFailed("the physics exploded")
ENDED = failed(FAILURE, committed=3, settings="")


@pytest.mark.parametrize(
    ("condition", "state", "exit_code"),
    [
        (by_answer(RunStatus(state=RunState.STARTING)), State.PENDING, None),
        (by_answer(RunStatus(state=RunState.RUNNING)), State.RUNNING, None),
        (by_answer(RunStatus(state=RunState.STALLED)), State.STALLED, None),
        (by_answer(RunStatus(state=RunState.FINISHED)), State.FINISHED, 0),
        (by_answer(RunStatus(state=RunState.FAILED, exit_code=3)), State.FAILED, 3),
        (by_exit(0), State.FINISHED, 0),
        (by_exit(137), State.FAILED, 137),
        (by_ending(ENDED), State.FAILED, 3),
        (by_ending(finished(committed=3, settings="")), State.FINISHED, 0),
    ],
)
def test_a_run_is_in_one_of_five_states(
    condition: Condition, state: State, exit_code: int | None
) -> None:
    assert (condition.state, condition.exit_code) == (state, exit_code)


def state(begun: Path) -> tuple[State, int | None]:
    found = condition_of(begun)
    return found.state, found.exit_code


def test_a_directory_without_a_process_says_how_its_run_has_ended(begun: Path) -> None:
    assert state(begun) == (State.PENDING, None)  # half submitted
    with attached(begun):
        assert trainer_of(begun) == os.getpid()
        assert state(begun) == (State.PENDING, None)
    assert state(begun) == (State.FINISHED, 0)
    (begun / OUTCOME).unlink()
    assert state(begun) == (State.FAILED, 9)  # as if it had been killed
    for error, expected in (
        (KeyboardInterrupt(), (State.PENDING, 130)),
        (FAILURE, (State.FAILED, 3)),
        (ExceptionGroup("tasks", [ServiceLost("replay is away")]), (State.FAILED, 9)),
        (ZeroDivisionError("a defect"), (State.FAILED, 1)),
    ):
        with pytest.raises(type(error)), attached(begun):
            raise error
        assert state(begun) == expected
    write_ending(begun, ENDED)
    assert state(begun) == (State.FAILED, 3)
    with lock_launch(begun):
        os.utime(begun / "run.json", ns=(0, 0))  # it failed before this process
        assert state(begun) == (State.PENDING, None)
    write_ending(begun, finished(committed=3, settings=""))
    assert state(begun) == (State.FINISHED, 0)
    with lock_launch(begun):
        os.utime(begun / "run.json", ns=(0, 0))  # it goes on to more iterations
        assert state(begun) == (State.PENDING, None)


def test_an_outcome_is_not_that_of_a_controller_that_has_begun_since(begun: Path) -> None:
    with pytest.raises(KeyboardInterrupt), attached(begun):
        raise KeyboardInterrupt
    (begun / "run.json").write_text("{}")
    os.utime(begun / OUTCOME, ns=(0, 0))
    assert state(begun) == (State.FAILED, 9)


@pytest.mark.parametrize("kept", [0, 20])
def test_a_damaged_end_is_named_and_is_no_run_that_was_killed(begun: Path, kept: int) -> None:
    write_ending(begun, finished(committed=3, settings=""))
    os.truncate(begun / "run.json", kept)
    with pytest.raises(Malformed, match=r"run\.json"):
        state(begun)


def test_a_reader_that_misses_a_process_which_has_just_begun_looks_again(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lock_launch(begun):
        seen = iter([None, os.getpid(), os.getpid()])
        monkeypatch.setattr(this_host, "trainer_of", lambda _: next(seen))
        assert state(begun) == (State.PENDING, None)


def test_a_process_that_ends_at_once_leaves_its_outcome(begun: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from fullrank.cli.this_host import attached\n"
        "from fullrank.common.errors import Stuck\n"
        "from fullrank.host.process import end_process\n"
        "with attached(Path(sys.argv[1])): end_process(Stuck('a disk hangs'))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(begun)], check=False, timeout=WAIT_S)
    assert ran.returncode == Stuck.exit_code
    assert state(begun) == (State.FAILED, Stuck.exit_code)
    assert condition_of(begun).reason == "a disk hangs"


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"exit_code": "x", "reason": 1}'])
def test_a_damaged_outcome_is_that_of_a_killed_process(begun: Path, damage: str) -> None:
    with attached(begun):
        pass
    (begun / OUTCOME).write_text(damage)
    assert state(begun) == (State.FAILED, 9)


HOLDER = """
import sys
from pathlib import Path
from fullrank.host.run_directory import lock_launch

with lock_launch(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(begun: Path) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds the run."""
    command = [sys.executable, "-c", HOLDER, str(begun)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_process_is_that_of_a_run_while_it_holds_the_lock_wherever_the_directory_is(
    begun: Path, holder: "subprocess.Popen[str]"
) -> None:
    assert trainer_of(begun) == holder.pid
    moved = begun.rename("elsewhere")
    assert trainer_of(moved) == holder.pid
    stated = (moved / "logs" / "lock").read_text()
    (moved / "logs" / "lock").write_text(f"{os.getpid()}\n")  # as if it had got its number
    assert trainer_of(moved) is None
    (moved / "logs" / "lock").write_text(stated)
    holder.kill()
    holder.wait()
    assert trainer_of(moved) is None
    assert state(moved) == (State.FAILED, 9)


def test_a_process_of_services_is_stopped_and_its_run_waits(begun: Path, fullrank: Any) -> None:
    code = HOLDER.replace("lock_launch", "lock_run")
    command = [sys.executable, "-c", code, str(begun)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "held\n"
        refused = fullrank("run", "resume", str(begun))
        assert (refused.code, refused.error.count("\n")) == (5, 1)
        assert "stopped after 0 iterations" in fullrank("run", "stop", "runs/one").output
    assert state(begun) == (State.PENDING, 130)


def test_a_process_that_does_not_stop_is_one_line(
    begun: Path, fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_host, "STOP_S", -1.0)
    monkeypatch.setattr(this_host, "trainer_of", lambda _: os.getpid())
    monkeypatch.setattr(os, "kill", lambda *_: None)
    outcome = fullrank("run", "stop", "runs/one")
    assert (outcome.code, outcome.error.count("\n")) == (9, 1)
    assert f"kill -KILL {os.getpid()}" in outcome.error


def test_a_run_that_was_killed_is_not_followed_for_ever(begun: Path, fullrank: Any) -> None:
    with lock_launch(begun):
        pass
    followed = fullrank("run", "status", "runs/one", "--follow")
    assert followed.code == 0
    assert "FAILED: no process of this host trains it" in followed.output


def test_a_folder_of_the_working_directory_hides_no_run(begun: Path, fullrank: Any) -> None:
    Path("one").mkdir()
    assert "results: runs/one" in fullrank("run", "status", "one", "--on", "host").output
    assert "cannot read one/config.toml" in fullrank("run", "status", "./one").error


def test_an_expected_error_is_the_reason(begun: Path) -> None:
    with pytest.raises(FullrankError), attached(begun):
        raise FullrankError("one\nline")
    assert condition_of(begun).reason == "one line"


def test_a_command_that_is_killed_while_it_is_told_to_stop_has_failed(
    begun: Path, holder: "subprocess.Popen[str]", fullrank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``train`` leaves its outcome itself, unless it is killed."""
    kill = os.kill
    monkeypatch.setattr(os, "kill", lambda pid, _: (kill(pid, signal.SIGKILL), holder.wait()))
    said = fullrank("run", "stop", "runs/one").output
    assert said.startswith("one on host: FAILED: no process of this host trains it")
    assert state(begun) == (State.FAILED, 9)
