"""``fullrank train --collectors``: collectors that are killed leave the bits of the run alone."""

import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.e2e.commands import (
    ENDLESS,
    centralised,
    committed,
    digests,
    end,
    final_state,
    fullrank,
    interrupt,
    start,
)
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.e2e

ITERATIONS = 12
SMALL = (
    f"iterations={ITERATIONS}",
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
TEAMS = {
    "qmix": (
        "algorithm.name=qmix",
        "algorithm.micro_batches=2",
        "algorithm.batch_size=8",
        "environment.name=smac_lite",
    ),
    "maddpg": ("algorithm.batch_size=32",),
}


def options(team: str, *further: str) -> list[str]:
    words = (*SMALL, *TEAMS[team], *further)
    return [word for setting in words for word in ("--set", setting)]


def replicas(process: psutil.Process) -> Sequence[psutil.Process]:
    """The processes that play for a ``train``."""
    return [
        child
        for each in process.children()
        if "collector" in each.cmdline()
        for child in each.children()
    ]


def test_a_collector_that_is_killed_is_started_again(tmp_path: Path) -> None:
    """The only one dies: without another the run would wait for ever."""
    run_dir = tmp_path / "run"
    words = ("--run-dir", str(run_dir), "--collectors", "1", "--learners", "1")
    process = start("train", *words, *options("maddpg", "code.name=uncoded", ENDLESS))
    wait_until(partial(_is_past, process, run_dir, 2), what="two iterations")
    [victim] = replicas(psutil.Process(process.pid))
    victim.send_signal(signal.SIGKILL)
    victim.wait(WAIT_S)
    ahead = committed(run_dir) + ITERATIONS  # beyond what was played before
    wait_until(partial(_is_past, process, run_dir, ahead), what="the run goes on")
    interrupt(process)
    outcome = end(process)
    assert outcome.code == 130, outcome.error


def _is_past(process: "subprocess.Popen[str]", run_dir: Path, moment: int) -> bool:
    return committed(run_dir) >= moment or process.poll() is not None


@pytest.mark.parametrize("team", TEAMS)
def test_collectors_killed_at_random_moments_change_no_bit(team: str, tmp_path: Path) -> None:
    """The run is also that of one process, byte for byte in its last checkpoint."""
    run_dir, alone = tmp_path / "collected", tmp_path / "alone"
    words = ("--run-dir", str(run_dir), "--collectors", "3", "--learners", "2")
    process = start("train", *words, *options(team, ENDLESS))
    moments = np.random.default_rng(1).choice(np.arange(1, ITERATIONS - 2), 2, replace=False)
    for moment in sorted(moments.tolist()):
        wait_until(partial(_is_past, process, run_dir, moment), what=f"{moment} iterations")
        victims = replicas(psutil.Process(process.pid))
        victims[0].send_signal(signal.SIGKILL)
        victims[0].wait(WAIT_S)
    wait_until(partial(_is_past, process, run_dir, ITERATIONS), what="the run goes on")
    interrupt(process)
    outcome = end(process)
    assert outcome.code == 130, outcome.error
    assert (run_dir / "logs" / "collector.log").read_text().count("replica_died") == len(moments)
    keyed = options(team, "collect.mode=keyed", f"iterations={committed(run_dir)}")
    local = fullrank("train", "--local", "--run-dir", str(alone), *keyed)
    assert local.code == 0, local.error
    assert digests(run_dir) == digests(alone) == centralised(alone)
    assert final_state(run_dir) == final_state(alone)


def test_a_run_with_collectors_is_recomputed_and_may_go_on_without_them(tmp_path: Path) -> None:
    whole, moved = tmp_path / "whole", tmp_path / "moved"
    words = ("--collectors", "2", "--learners", "2", *options("qmix"))
    killed = {"FULLRANK_FAILPOINT": "iteration.published:7"}
    assert fullrank("train", "--run-dir", str(moved), *words, env=killed).code != 0
    resumed = fullrank("resume", str(moved), "--local")
    assert resumed.code == 0, resumed.error
    local = fullrank(
        "train", "--local", "--run-dir", str(whole), *options("qmix", "collect.mode=keyed")
    )
    assert local.code == 0, local.error
    assert final_state(moved) == final_state(whole)
    verified = fullrank("verify", str(moved))
    assert verified.code == 0, verified.error
