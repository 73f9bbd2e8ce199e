"""The controller's machine is lost: another one goes on from the store, to the same bytes."""

import shutil
import signal
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
    records,
    settings,
)
from tests.e2e.forked import Forked, Forks
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import wait_until

from fullrank.common.failpoints import VARIABLE
from fullrank.common.seeding import stream
from fullrank.net.controller_client import StatusPoller
from fullrank.net.status import RunState
from fullrank.runs.ending import lasting_caveats

pytestmark = pytest.mark.e2e

ITERATIONS = 24
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

    def __init__(self, home: Path, store: str, forks: Forks) -> None:
        addresses = [f"{name}.address={free_address()}" for name in ("controller", "replay")]
        self.home, self._log = home, home / "log"
        self._settings = settings(*SETTINGS, *addresses, f"store.url={store}")
        self._forks = forks
        self._begin_services()

    def _begin_services(self) -> None:
        self._services = [
            self.serve("replay", self.home / "replay"),
            self.serve("learner", self.home / "learners", "--replicas", "3"),
        ]

    def lose_services(self) -> None:
        """Kill replay and learners, remove their disks, and begin others."""
        for name, service in zip(("replay", "learners"), self._services, strict=True):
            service.kill()
            shutil.rmtree(self.home / name)
        self._begin_services()

    def serve(self, name: str, run_dir: Path, *words: str, failpoint: str = "") -> Forked:
        run_dir.mkdir(exist_ok=True)
        options = (*self._settings, "--run-dir", str(run_dir), *words)
        return self._forks.start(name, *options, log=self._log, env={VARIABLE: failpoint})

    def finish(self, run_dir: Path) -> None:
        """Wait for the end of the run, and compare it with the undisturbed one."""
        wait_until((run_dir / "config.toml").exists, what="the run is there")
        with StatusPoller(run_dir, config_of(run_dir)) as watch:
            wait_until(lambda: watch.status().state is RunState.FINISHED, what="the run finishes")
        expected = centralised(run_dir)
        assert digests(run_dir) == expected
        whole = range(config_of(run_dir).iterations)
        assert [record.iteration for record in records(run_dir)] == list(whole)
        assert violations(read_history(run_dir, stored=True), reference=expected) == []


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with Forks() as forks:
        yield Deployment(tmp_path, str(tmp_path / "volume"), forks)


POINTS = ("store.written", "store.checkpointed", "update.applied", "iteration.published")
"""Failpoints, each of which a controller of this run reaches often."""


@pytest.mark.parametrize("moments", [4, pytest.param(10, marks=pytest.mark.thorough)])
def test_a_controller_and_its_disk_that_are_lost_again_and_again_lose_nothing_that_was_shown(
    deployment: Deployment, tmp_path: Path, moments: int
) -> None:
    """Every moment is drawn from one seed."""
    draws, shown = stream(3, "moments"), list[str]()
    for moment in range(moments):
        run_dir = tmp_path / f"machine-{moment}"
        point, count = POINTS[int(draws.integers(len(POINTS)))], int(draws.integers(1, 5))
        controller = deployment.serve("controller", run_dir, failpoint=f"{point}:{count}")
        assert controller.wait() == -signal.SIGKILL
        if (run_dir / "metrics.jsonl").exists():
            found = digests(run_dir)
            shown += found[len(shown) :]
            assert found == shown[: len(found)]
        shutil.rmtree(run_dir)
    last = tmp_path / "last"
    controller = deployment.serve("controller", last)
    deployment.finish(last)
    assert digests(last)[: len(shown)] == shown
    assert records(last)[-1].term == moments + 1
    assert controller.stop() == 0


MOMENTS = (
    "store.planned:2",
    "store.rows:1",
    "rows.restored:1",
    "store.checkpointed:2",
)
"""Failpoints around what a checkpoint and a resumption do to rows, and counts."""


def test_a_run_whose_machines_are_all_killed_at_each_new_write_ends_with_the_same_bytes(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Controller, replay and learners end, and their disks with them."""
    longer = ("--set", f"iterations={4 * ITERATIONS}")
    for moment in MOMENTS:
        machine = tmp_path / moment
        controller = deployment.serve("controller", machine, *longer, failpoint=moment)
        assert controller.wait() == -signal.SIGKILL
        deployment.lose_services()
        shutil.rmtree(machine)
    last = tmp_path / "last"
    controller = deployment.serve("controller", last, *longer)
    deployment.finish(last)
    assert lasting_caveats(last) == []
    assert controller.stop() == 0


def test_a_frozen_controller_that_another_one_follows_publishes_nothing_more(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Its address moves with its successor, as a service's name would."""
    frozen, run_dir = tmp_path / "frozen", tmp_path / "successor"
    other = free_address()
    settings = ("--set", ENDLESS, "--set", f"controller.listen={other}")
    controller = deployment.serve("controller", frozen, *settings)
    deployment.serve(
        "learner", tmp_path / "own", "--set", f"controller.address={other}", "--replicas", "3"
    )
    wait_until(lambda: committed(frozen) > 1, what="two iterations are committed")
    controller.signal(signal.SIGSTOP)
    before = committed(frozen)
    # What it has stored and not shown yet belongs to the run, too.
    last = ("--set", f"iterations={before + 10 * ITERATIONS}")
    deployment.serve("controller", run_dir, *last)
    wait_until(lambda: committed(run_dir) > before + 1, what="its successor goes on")
    controller.signal(signal.SIGCONT)
    assert controller.wait() == 11
    deployment.finish(run_dir)
    shown = digests(frozen)
    assert shown == digests(run_dir)[: len(shown)]
    assert {record.term for record in records(frozen)} == {1}
