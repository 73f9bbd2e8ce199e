"""An environment that hangs ends the controller with a message."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.e2e.commands import kill_all, processes_of, settings, start
from tests.waiting import WAIT_S, wait_until

pytestmark = pytest.mark.e2e

HANGING = """
import os, time
from fullrank.environments import parallel

steps = 0

def parallel_env():
    env = parallel.parallel_env("cooperative_navigation", agents=3)
    step = env.step

    def slower_and_slower(actions):
        global steps
        steps += 1
        if steps > int(os.environ["STEPS"]):
            time.sleep(3600)
        return step(actions)

    env.step = slower_and_slower
    return env
"""
WARM_UP, ITERATION = 128, 50
"""Steps before the first iteration, and those of each iteration."""


def test_an_environment_that_hangs_ends_the_controller_with_its_stacks(tmp_path: Path) -> None:
    """It hangs beside an update that must wait for the collection."""
    (tmp_path / "hanging.py").write_text(HANGING)
    settled = ("controller.deadline_s=2.0", "environment.name=hanging:parallel_env")
    options = settings(*settled, "collect.lag=1", "learners=3", "code.name=uncoded")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    env = {"PYTHONPATH": path, "STEPS": str(WARM_UP + ITERATION)}
    words = [*options, "--run-dir", str(tmp_path)]
    try:
        start("serve", "replay", *words, output=subprocess.DEVNULL)
        controller = start("serve", "controller", *words, env=env)
        start("serve", "learner", "--replicas", "3", *words, output=subprocess.DEVNULL)
        _, said = controller.communicate(timeout=WAIT_S)
    finally:
        kill_all(tmp_path)
    assert controller.returncode == 14
    assert "fullrank: playing has taken" in said
    assert re.search(
        r"; copy \d is in step \d+ of seed \d+ of hanging:parallel_env; iteration 0 ", said
    )
    assert "hanging.py" in (tmp_path / "stacks-1.txt").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("killed", ["train", "controller"])
def test_nothing_is_left_of_a_train_whose_environment_hangs_when_it_or_its_controller_is_killed(
    tmp_path: Path, killed: str
) -> None:
    (tmp_path / "hanging.py").write_text(
        HANGING.replace("time.sleep", "print('hung', flush=True); time.sleep")
    )
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    run_dir = tmp_path / "run"
    words = ["train", "--env", "hanging:parallel_env", "--learners", "3", "--code", "uncoded"]
    train = start(
        *words, *settings(), "--run-dir", str(run_dir), env={"PYTHONPATH": path, "STEPS": "0"}
    )
    try:
        log = run_dir / "logs" / "controller.log"
        wait_until(lambda: log.exists() and "hung" in log.read_text(), what="the environment hangs")
        victims = [each for each in processes_of(run_dir) if killed in each.cmdline()]
        assert victims
        for victim in victims:
            victim.kill()
        wait_until(lambda: not processes_of(run_dir), what="every process has ended")
    finally:
        train.kill()
        kill_all(tmp_path)
        train.communicate()
