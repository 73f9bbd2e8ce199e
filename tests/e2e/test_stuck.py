"""An environment that hangs ends the controller, which says so."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.e2e.commands import WAIT_S, kill_all, settings, start

pytestmark = pytest.mark.e2e

HANGING = """
import time
from fullrank.environments.parallel import cooperative_navigation_v0

def parallel_env():
    env = cooperative_navigation_v0()
    env.step = lambda actions: time.sleep(3600)
    return env
"""


def test_an_environment_that_hangs_ends_the_controller_with_its_stacks(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    options = settings("controller.stuck_after_s=1.0", "environment.name=hanging:parallel_env")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    words = [*options, "--run-dir", str(tmp_path)]
    try:
        start("serve", "replay", *words, output=subprocess.DEVNULL)
        controller = start("serve", "controller", *words, env={"PYTHONPATH": path})
        _, said = controller.communicate(timeout=WAIT_S)
    finally:
        kill_all(tmp_path)
    assert controller.returncode == 14
    assert "fullrank: warming up has taken" in said
    assert "iteration 0 of" in said
    assert "hanging.py" in (tmp_path / "stacks-1.txt").read_text()
