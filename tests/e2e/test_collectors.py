"""``fullrank train --collectors``: collectors that are killed leave the bits of the run alone."""

import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil
import pytest
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    digests,
    end,
    interrupt,
    start,
)
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.e2e

SMALL = (
    ENDLESS,
    "code.name=uncoded",
    "algorithm.name=qmix",
    "algorithm.micro_batches=2",
    "algorithm.batch_size=8",
    "environment.name=switch_riddle",
    "environment.agents=3",
    "environment.copies=6",
    "collect.block=2",
    "collect.lag=2",
    "collect.warmup=64",
    "collect.warmup_copies=8",
    "algorithm.hidden=16",
    "replay.capacity=20000",
    "metrics.sinks=[]",
    "checkpoint.every=5",
)


def replicas(process: psutil.Process) -> Sequence[psutil.Process]:
    """The processes that play for a ``train``."""
    return [
        child
        for each in process.children()
        if "collector" in each.cmdline()
        for child in each.children()
    ]


def test_a_collector_that_is_killed_is_started_again_and_changes_no_bit(tmp_path: Path) -> None:
    """The only one dies: without another the run would wait for ever."""
    run_dir = tmp_path / "run"
    options = [word for setting in SMALL for word in ("--set", setting)]
    words = ("--run-dir", str(run_dir), "--collectors", "1", "--learners", "1", *options)
    process = start("train", *words)
    wait_until(partial(_is_past, process, run_dir, 2), what="two iterations")
    [victim] = replicas(psutil.Process(process.pid))
    victim.send_signal(signal.SIGKILL)
    victim.wait(WAIT_S)
    ahead = committed(run_dir) + 6  # beyond what was played before
    wait_until(partial(_is_past, process, run_dir, ahead), what="the run goes on")
    interrupt(process)
    outcome = end(process)
    assert outcome.code == 130, outcome.error
    assert (run_dir / "logs" / "collector.log").read_text().count("replica_died") == 1
    found = digests(run_dir)
    assert found == centralised(run_dir, iterations=len(found))


def _is_past(process: "subprocess.Popen[str]", run_dir: Path, moment: int) -> bool:
    return committed(run_dir) >= moment or process.poll() is not None
