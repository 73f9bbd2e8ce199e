"""Services that wake after others took over: a stale controller ends, a learner rejoins."""

import shutil
import signal
from pathlib import Path

import psutil
import pytest
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    config_of,
    digests,
    records,
    settings,
)
from tests.e2e.forked import Forked, Forks
from tests.waiting import wait_until

from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.recovery import examine

pytestmark = pytest.mark.e2e

SETTINGS = (
    ENDLESS,
    "learners=3",
    "code.name=uncoded",
    "controller.heartbeat_s=0.2",
    "controller.lost_after_s=10.0",
    "checkpoint.every=4",
    "compute.emulate_unit_s=0.2",
)


def serve(forks: Forks, name: str, run_dir: Path, *words: str) -> Forked:
    options = (*settings(*SETTINGS), "--run-dir", str(run_dir), *words)
    return forks.start(name, *options, log=run_dir / f"{name}.log")


def wait_for(run_dir: Path, state: RunState) -> None:
    with StatusPoller(run_dir, config_of(run_dir)) as watch:
        wait_until(lambda: watch.status().state is state, what=str(state))


def test_a_frozen_controller_that_was_followed_by_another_ends_and_writes_nothing(
    tmp_path: Path,
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with Forks() as forks:
        serve(forks, "replay", run_dir)
        zombie = serve(forks, "controller", run_dir)
        learners = serve(forks, "learner", run_dir, "--replicas", "3")
        wait_until(lambda: committed(run_dir) > 1, what="two iterations are committed")
        assert learners.stop() == 0
        wait_for(run_dir, RunState.STALLED)
        zombie.signal(signal.SIGSTOP)
        before = examine(run_dir, published=0).committed
        shutil.copytree(run_dir, tmp_path / "backup")  # as on a disk that was restored
        run_dir.rename(tmp_path / "lost")
        (tmp_path / "backup").rename(run_dir)

        serve(forks, "controller", run_dir, "--set", f"iterations={before + 4}")
        serve(forks, "learner", run_dir, "--replicas", "3")
        wait_until(lambda: committed(run_dir) == before + 4, what="the successor goes on")
        wait_for(run_dir, RunState.FINISHED)
        zombie.signal(signal.SIGCONT)
        assert zombie.wait() == 11
        wait_for(run_dir, RunState.FINISHED)  # it has not withdrawn its successor's address
    assert [record.iteration for record in records(run_dir)] == list(range(before + 4))
    assert [record.term for record in records(run_dir)] == [1] * before + [2] * 4
    assert digests(run_dir) == centralised(run_dir)
    said = (tmp_path / "lost" / "controller.log").read_text()
    assert "is in term 2, this controller in term 1" in said


def test_a_frozen_learner_is_given_up_and_takes_part_again_when_it_wakes(tmp_path: Path) -> None:
    def rows_each() -> int:
        return records(tmp_path)[-1].rows_per_learner if committed(tmp_path) else 0

    with Forks() as forks:
        serve(forks, "replay", tmp_path)
        serve(forks, "controller", tmp_path)
        learners = serve(forks, "learner", tmp_path, "--replicas", "3")
        wait_until(lambda: rows_each() == 1, what="three learners share the rows")
        frozen = psutil.Process(learners.pid).children()[0]
        frozen.suspend()
        wait_until(lambda: rows_each() == 2, what="the others go on")
        frozen.resume()
        wait_until(lambda: rows_each() == 1, what="three learners share the rows again")
    assert len(records(tmp_path)[-1].received) == 3
    committed_digests = digests(tmp_path)
    assert committed_digests == centralised(tmp_path, iterations=len(committed_digests))
