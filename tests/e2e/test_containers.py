"""``fullrank train --topology cmarl``: a container that is killed costs the run nothing."""

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.e2e.commands import ENDLESS, committed, end, interrupt, start
from tests.e2e.test_collectors import replicas
from tests.waiting import wait_until

# Thorough, as `make containers` has it with pods.
pytestmark = [pytest.mark.e2e, pytest.mark.thorough]

SMALL = (
    "environment.name=two_step_game",
    "code.name=uncoded",
    "algorithm.batch_size=8",
    "algorithm.hidden=8",
    "algorithm.mixing=4",
    "algorithm.hypernet=4",
    "collect.warmup_episodes=16",
    "containers.batch_size=8",
    "containers.every_s=0.1",
    ENDLESS,
    "metrics.sinks=[]",
)


def updates(run_dir: Path) -> dict[int, int]:
    """Updates behind the heads that the controller has on disk."""
    heads = (run_dir / "heads").glob("[0-9]*.npz")
    return {int(path.stem): int(np.load(path)["updates"]) for path in heads}


def test_killed_containers_learn_on_and_the_run_goes_on(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    options = [word for setting in SMALL for word in ("--set", setting)]
    words = ("--run-dir", str(run_dir), "--topology", "cmarl-2-actors", "--collectors", "2")
    process = start("train", *words, "--learners", "1", *options)

    def holds(condition: Callable[[], bool], *, what: str) -> None:
        wait_until(lambda: process.poll() is not None or condition(), what=what)
        assert process.poll() is None, end(process).error

    try:
        holds(lambda: len(updates(run_dir)) == 2, what="two heads")
        for victim in replicas(psutil.Process(process.pid)):
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        before, done = updates(run_dir), committed(run_dir)
        holds(
            lambda: all(updates(run_dir)[each] > before[each] for each in before),
            what="newer heads of both",
        )
        holds(lambda: committed(run_dir) > done, what="iterations")
    finally:
        interrupt(process)
        outcome = end(process)
    assert (run_dir / "logs" / "collector.log").read_text().count("replica_died") == 2
    assert "continue with: fullrank run resume" in outcome.output
