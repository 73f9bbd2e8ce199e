"""The controller's machine is lost: a standby goes on from the mirror, to the same bytes."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    config_of,
    digests,
    kill_all,
    records,
    settings,
    start,
)
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import WAIT_S, wait_until

from fullrank.common.failpoints import VARIABLE
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState

pytestmark = pytest.mark.e2e

ITERATIONS = 12
SETTINGS = (
    f"iterations={ITERATIONS}",
    "learners=3",
    "code.name=uncoded",
    "collect.steps=9",  # episodes of 25 steps cross iterations
    "controller.heartbeat_s=0.2",
    "controller.lost_after_s=2.0",
    "checkpoint.every=4",
    "checkpoint.keep=1",
)


class Deployment:
    """Replay and learners of a run, whose controllers have directories of their own."""

    def __init__(self, home: Path, mirror: str) -> None:
        addresses = [f"{name}.address={free_address()}" for name in ("controller", "replay")]
        self.home, self._log = home, home / "log"
        self._settings = settings(*SETTINGS, *addresses, f"checkpoint.mirror={mirror}")
        self.serve("replay", home / "replay")
        self.serve("learner", home / "learners", "--replicas", "3")

    def serve(
        self, name: str, run_dir: Path, *words: str, failpoint: str = ""
    ) -> "subprocess.Popen[str]":
        run_dir.mkdir(exist_ok=True)
        options = [*self._settings, "--run-dir", str(run_dir), *words]
        with self._log.open("a") as log:
            return start("serve", name, *options, env={VARIABLE: failpoint}, output=log)

    def finish(self, run_dir: Path) -> None:
        """Wait for the end of the run, and compare it with the undisturbed one."""
        wait_until((run_dir / "config.toml").exists, what="the run is there")
        with StatusPoller(run_dir, config_of(run_dir)) as watch:
            wait_until(lambda: watch.status().state is RunState.FINISHED, what="the run finishes")
        expected = centralised(run_dir)
        assert digests(run_dir) == expected
        whole = range(config_of(run_dir).iterations)
        assert [record.iteration for record in records(run_dir)] == list(whole)
        assert violations(read_history(run_dir), reference=expected) == []

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    yield Deployment(tmp_path, str(tmp_path / "volume"))
    kill_all(tmp_path)


def test_a_standby_goes_on_where_the_lost_controller_stood(
    deployment: Deployment, tmp_path: Path
) -> None:
    lost, run_dir = tmp_path / "lost", tmp_path / "standby"
    controller = deployment.serve("controller", lost, failpoint="mirror.stored:7")
    assert controller.wait(WAIT_S) == -signal.SIGKILL
    published = digests(lost)
    shutil.rmtree(lost)
    standby = deployment.serve("controller", run_dir, "--standby")
    deployment.finish(run_dir)
    assert digests(run_dir)[: len(published)] == published
    assert all(record.term == 1 for record in records(run_dir)[: len(published)])
    assert records(run_dir)[-1].term > 1
    standby.terminate()
    assert standby.wait(WAIT_S) == 0


def test_a_frozen_controller_that_a_standby_followed_publishes_nothing_more(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Its address moves with the standby, as a service's name would."""
    frozen, run_dir = tmp_path / "frozen", tmp_path / "standby"
    other = free_address()
    settings = ("--set", ENDLESS, "--set", f"controller.listen={other}")
    controller = deployment.serve("controller", frozen, *settings)
    deployment.serve(
        "learner", tmp_path / "own", "--set", f"controller.address={other}", "--replicas", "3"
    )
    wait_until(lambda: committed(frozen) > 1, what="two iterations are committed")
    controller.send_signal(signal.SIGSTOP)
    before = committed(frozen)
    last = ("--set", f"iterations={before + ITERATIONS}")
    deployment.serve("controller", run_dir, "--standby", *last)
    wait_until(lambda: committed(run_dir) > before + 1, what="the standby goes on")
    controller.send_signal(signal.SIGCONT)
    assert controller.wait(WAIT_S) == 11
    assert committed(frozen) <= before + 1
    deployment.finish(run_dir)
