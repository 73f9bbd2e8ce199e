"""A controller that was frozen, and followed by another, wakes to find itself deposed."""

import signal
import subprocess
from pathlib import Path

import pytest
from tests.e2e.commands import (
    WAIT_S,
    committed,
    config_of,
    digests,
    eventually,
    final_state,
    kill_all,
    learners_of,
    records,
    settings,
    start,
)

from fullrank.rpc.seen import RunState
from fullrank.rpc.watch import Watch

pytestmark = pytest.mark.e2e

ITERATIONS = 8
SETTINGS = (
    f"iterations={ITERATIONS}",
    "learners=3",
    "code.name=uncoded",
    "controller.heartbeat_s=0.2",
    "controller.lost_after_s=4.0",
    "checkpoint.every=4",
)


def serve(name: str, run_dir: Path, *words: str) -> "subprocess.Popen[str]":
    options = [*settings(*SETTINGS), "--run-dir", str(run_dir), *words]
    with (run_dir / f"{name}.log").open("a") as log:
        return start("serve", name, *options, output=log)


def wait_for(run_dir: Path, state: RunState) -> None:
    with Watch(run_dir, config_of(run_dir)) as watch:
        eventually(lambda: watch.status().state is state, what=str(state))


def reference(run_dir: Path) -> bytes:
    """The final state of a run to which nothing happened."""
    started = [serve("replay", run_dir), serve("controller", run_dir)]
    started.append(serve("learner", run_dir, "--replicas", "3"))
    eventually((run_dir / "config.toml").exists, what="the controller starts")
    wait_for(run_dir, RunState.FINISHED)
    for process in reversed(started):
        process.terminate()
        assert process.wait(WAIT_S) == 0
    return final_state(run_dir)


def test_a_frozen_controller_that_was_followed_by_another_ends_and_writes_nothing(
    tmp_path: Path,
) -> None:
    expected, run_dir = tmp_path / "expected", tmp_path / "run"
    expected.mkdir()
    run_dir.mkdir()
    final = reference(expected)
    try:
        serve("replay", run_dir)
        zombie = serve("controller", run_dir)
        serve("learner", run_dir, "--replicas", "3")
        eventually(lambda: committed(run_dir) > 1, what="two iterations are committed")
        learners_of(run_dir)[0].kill()
        wait_for(run_dir, RunState.STALLED)
        zombie.send_signal(signal.SIGSTOP)
        before = committed(run_dir)
        (run_dir / "lock").unlink()  # as a shared disk may forget who holds it

        serve("controller", run_dir)
        serve("learner", run_dir)
        eventually(lambda: committed(run_dir) == ITERATIONS, what="the successor commits the rest")
        wait_for(run_dir, RunState.FINISHED)
        zombie.send_signal(signal.SIGCONT)
        assert zombie.wait(WAIT_S) == 11
        wait_for(run_dir, RunState.FINISHED)  # it has not withdrawn its successor's address
    finally:
        kill_all(run_dir)
    assert [record.iteration for record in records(run_dir)] == list(range(ITERATIONS))
    assert [record.term for record in records(run_dir)] == [1] * before + [2] * (
        ITERATIONS - before
    )
    assert digests(run_dir) == digests(expected)
    assert final_state(run_dir) == final
    assert "is in term 2, this controller in term 1" in (run_dir / "controller.log").read_text()
