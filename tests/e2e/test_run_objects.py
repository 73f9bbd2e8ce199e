"""Runs as objects of this host, by real processes: submitted, looked at, stopped, killed."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    digests,
    fullrank,
    kill_all,
    settings,
    shorten,
)
from tests.e2e.test_bad_input import ENVIRONMENT
from tests.waiting import wait_until

from fullrank.cli.this_host import condition_of

pytestmark = pytest.mark.e2e

RUNS = Path("runs")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory, whose processes are ended; no run elsewhere is asked for."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    kill_all(tmp_path)


def submit(name: str, *words: str, env: dict[str, str] | None = None) -> None:
    submitted = fullrank("run", "submit", name, *words, env=env)
    assert submitted.code == 0, submitted.error


def look(name: str) -> dict[str, Any]:
    shown = fullrank("run", "status", str(RUNS / name), "--json")
    assert shown.code == 0, shown.error
    facts: dict[str, Any] = json.loads(shown.output)
    return facts


def wait_for(name: str, *states: str) -> dict[str, Any]:
    """The object once it is in one of these states.

    Commands that ask again and again would take the processor from the run that they wait for.
    """

    def there() -> bool:
        return condition_of(RUNS / name).state in states

    wait_until(there, what=f"{name} is {states}", every_s=0.5)
    facts = look(name)
    assert facts["state"] in states
    return facts


def trainer(name: str) -> int:
    return int((RUNS / name / "logs" / "lock").read_text())


@pytest.mark.smoke
def test_a_run_is_submitted_stopped_and_resumed_and_finishes_with_the_same_bits() -> None:
    submit("one", *settings(ENDLESS, "learners=2"))
    wait_for("one", "RUNNING")
    again = fullrank("run", "submit", "one", *settings())
    assert (again.code, again.error.count("\n")) == (5, 1)
    again = fullrank("run", "resume", str(RUNS / "one"))
    assert (again.code, again.error.count("\n")) == (5, 1)
    wait_until(lambda: committed(RUNS / "one") >= 3, what="three iterations")
    stopped = fullrank("run", "stop", str(RUNS / "one"))
    assert (stopped.code, stopped.error) == (0, "")
    facts = look("one")
    assert (facts["state"], facts["exit_code"], facts["results"]) == ("PENDING", 130, "runs/one")
    before = committed(RUNS / "one")
    assert (RUNS / "one" / "checkpoints" / f"{before - 1:06d}").exists()
    assert fullrank("run", "stop", str(RUNS / "one")).code == 1
    shorten(RUNS / "one", iterations=before + 3)
    assert fullrank("run", "resume", str(RUNS / "one")).code == 0
    facts = wait_for("one", "FINISHED", "FAILED")
    assert (facts["state"], facts["exit_code"]) == ("FINISHED", 0)
    log = fullrank("run", "logs", str(RUNS / "one"), "--follow")  # ends with the run
    assert f"iteration {before + 3}/{before + 3}" in log.output
    (listed,) = json.loads(fullrank("run", "list", "--on", "host", "--json").output)
    assert listed == {key: facts[key] for key in listed}
    assert digests(RUNS / "one") == centralised(RUNS / "one")


def test_a_run_that_fails_for_good_is_failed_with_its_reason_until_it_is_tried_again(
    folder: Path,
) -> None:
    (folder / "flawed.py").write_text(ENVIRONMENT)
    env = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    chosen = ("environment.name=flawed:Flawed", "environment.copies=1", "collect.warmup=32")
    submit("two", *settings("iterations=8", *chosen), "--local", env=env)
    facts = wait_for("two", "FAILED", "FINISHED")
    assert (facts["state"], facts["exit_code"]) == ("FAILED", 3)
    assert "the physics exploded" in facts["reason"]
    text = (folder / "flawed.py").read_text()
    (folder / "flawed.py").write_text(text.replace("raise RuntimeError", "RuntimeError"))
    trust = ("--trust", "flawed:Flawed")
    resumed = fullrank("run", "resume", str(RUNS / "two"), "--local", *trust, env=env)
    assert resumed.code == 0, resumed.error
    facts = wait_for("two", "FINISHED", "FAILED")
    assert facts["state"] == "FINISHED", facts


def test_a_killed_run_has_failed_also_if_another_process_gets_its_number() -> None:
    submit("three", *settings(ENDLESS), "--local")
    wait_until(lambda: committed(RUNS / "three") >= 1, what="an iteration")
    os.kill(trainer("three"), signal.SIGKILL)
    facts = wait_for("three", "FAILED")
    assert facts["exit_code"] == 9
    assert "it was killed" in facts["reason"]
    (RUNS / "three" / "logs" / "lock").write_text(f"{os.getpid()}\n")  # a process that lives
    assert look("three")["state"] == "FAILED"
    assert fullrank("run", "stop", str(RUNS / "three")).code == 1
    resumed = fullrank("run", "resume", str(RUNS / "three"), "--local")
    assert resumed.code == 0, resumed.error
    stopped = fullrank("run", "stop", str(RUNS / "three"))
    assert (stopped.code, stopped.error) == (0, "")


@pytest.mark.parametrize(
    "early",
    [
        lambda: True,
        pytest.param(lambda: committed(RUNS / "four") >= 1, marks=pytest.mark.thorough),
    ],
)
def test_a_run_that_is_told_to_stop_before_its_first_iteration_is_pending(
    early: Callable[[], bool],
) -> None:
    submit("four", *settings(ENDLESS, "learners=2"))
    wait_until(early, what="the moment")
    assert fullrank("run", "stop", str(RUNS / "four")).code == 0
    facts = look("four")
    assert (facts["state"], facts["exit_code"]) == ("PENDING", 130)
