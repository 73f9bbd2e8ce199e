"""Real learners that get a notice of their machine's loss."""

import signal
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.commands import centralised, committed, digests, kill_all, settings, start
from tests.faultlab.history import read_history
from tests.faultlab.invariants import violations
from tests.waiting import WAIT_S, wait_until

from fullrank.runs.events import Left

pytestmark = pytest.mark.e2e


def test_learners_that_get_a_notice_leave_by_name_and_change_no_bit(tmp_path: Path) -> None:
    """Every learner of the run is told to leave in the middle of its work, and others come."""
    options = settings(
        "iterations=8", "learners=2", "code.name=uncoded", "compute.emulate_unit_s=0.2"
    )
    options += ["--run-dir", str(tmp_path)]
    drained = ["--set", "learner.drain_s=0.0"]
    try:
        for service in ("replay", "controller"):
            with (tmp_path / f"{service}.log").open("w") as log:
                start("serve", service, *options, output=log)
        with (tmp_path / "learners.log").open("w") as log:
            leavers = [start("serve", "learner", *options, *drained, output=log) for _ in range(2)]
            for at, leaver in enumerate(leavers):
                works = partial(_committed_more_than, tmp_path, 2 * at)
                wait_until(works, what="it works")
                start("serve", "learner", *options, output=log)
                leaver.send_signal(signal.SIGTERM)
                assert leaver.wait(WAIT_S) == 0
        wait_until(lambda: committed(tmp_path) == 8, what="the run finishes")
        history = read_history(tmp_path)
        parted = [event.reason for event in history.controller if isinstance(event, Left)]
        assert [reason.partition(",")[0] for reason in parted] == ["it was told to stop"] * 2
        assert digests(tmp_path) == centralised(tmp_path)
        assert violations(history, reference=digests(tmp_path)) == []
    finally:
        kill_all(tmp_path)


def _committed_more_than(run_dir: Path, count: int) -> bool:
    return committed(run_dir) > count
