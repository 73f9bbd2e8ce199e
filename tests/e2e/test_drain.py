"""Real learners that get a notice of their machine's loss."""

from functools import partial
from pathlib import Path

import pytest
from tests.e2e.commands import centralised, committed, digests, settings
from tests.e2e.forked import Forks
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import wait_until

from fullrank.runs.events import Left

pytestmark = pytest.mark.e2e


def test_learners_that_get_a_notice_leave_by_name_and_change_no_bit(tmp_path: Path) -> None:
    """Every learner of the run is told to leave in the middle of its work, and others come."""
    options = settings(
        "iterations=8", "learners=2", "code.name=uncoded", "compute.emulate_unit_s=0.2"
    )
    options += ["--run-dir", str(tmp_path)]
    drained = ["--set", "learner.drain_s=0.0"]
    log = tmp_path / "log"
    with Forks() as forks:
        for service in ("replay", "controller"):
            forks.start(service, *options, log=log)
        leavers = [forks.start("learner", *options, *drained, log=log) for _ in range(2)]
        for at, leaver in enumerate(leavers):
            works = partial(_committed_more_than, tmp_path, 2 * at)
            wait_until(works, what="it works")
            forks.start("learner", *options, log=log)
            assert leaver.stop() == 0
        wait_until(lambda: committed(tmp_path) == 8, what="the run finishes")
        history = read_history(tmp_path)
        parted = [event.reason for event in history.controller if isinstance(event, Left)]
        assert [reason.partition(",")[0] for reason in parted] == ["it was told to stop"] * 2
        assert digests(tmp_path) == centralised(tmp_path)
        assert violations(history, reference=digests(tmp_path)) == []


def _committed_more_than(run_dir: Path, count: int) -> bool:
    return committed(run_dir) > count
