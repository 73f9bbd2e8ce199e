"""Bad input: one clear line, a documented exit code, nothing half-written."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.commands import (
    ENDLESS,
    Outcome,
    committed,
    end,
    fullrank,
    interrupt,
    processes_of,
    settings,
    start,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


def line_of(outcome: Outcome, *, code: int) -> str:
    """The single line that a command printed as its error."""
    lines = outcome.error.splitlines()
    assert len(lines) == 1, outcome.error
    assert lines[0].startswith("fullrank: ")
    assert outcome.code == code
    return lines[0]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--set", "code.tolerence=1"), 2, "did you mean 'tolerance'?"),
        (("--set", "iterations=many"), 2, "must be a valid integer"),
        (("--learners", "1"), 2, "use --learners 2 or a lower code.tolerance"),
        (("--code", "fractional", "--learners", "1"), 2, "use --learners 2"),
        (("--code", "ldpc", "--set", "code.tolerance=1"), 2, "has no parameter 'tolerance'"),
        (("--env", "cooperative_navigatoin"), 2, "did you mean 'cooperative_navigation'?"),
        (("--env", "nothing.here:factory"), 3, "nothing.here"),
        (("--config", "missing.toml"), 2, "missing.toml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_impossible_run_is_one_line_and_leaves_nothing(
    run_dir: Path, options: tuple[str, ...], code: int, said: str
) -> None:
    outcome = fullrank("train", "--run-dir", str(run_dir), *settings("iterations=2"), *options)
    assert said in line_of(outcome, code=code)
    assert not run_dir.exists()
    assert processes_of(run_dir) == []


ENVIRONMENT = """
from pettingzoo.utils import BaseParallelWrapper
from fullrank.environments.parallel import cooperative_navigation_v0


class Flawed(BaseParallelWrapper):
    def __init__(self):
        super().__init__(cooperative_navigation_v0())
        self.left = 60

    def step(self, actions):
        self.left -= 1
        if not self.left:
            raise RuntimeError("the physics exploded")
        return super().step(actions)
"""


def test_an_environment_that_raises_is_named_and_the_run_resumes_once_it_is_mended(
    run_dir: Path, tmp_path: Path
) -> None:
    module = tmp_path / "flawed.py"
    module.write_text(ENVIRONMENT)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    env = {"PYTHONPATH": path}
    outcome = fullrank(
        "train",
        "--run-dir",
        str(run_dir),
        "--env",
        "flawed:Flawed",
        *settings("iterations=4", "environment.copies=1", "collect.warmup=32"),
        env=env,
    )
    line = line_of(outcome, code=3)
    assert "the physics exploded" in line
    assert "flawed:Flawed" in line
    assert committed(run_dir) == 2
    assert processes_of(run_dir) == []
    module.write_text(ENVIRONMENT.replace("if not self.left", "if False"))
    changed = line_of(fullrank("resume", str(run_dir), env=env), code=2)
    assert f"{module} changed since this user trained it" in changed
    resumed = fullrank("resume", str(run_dir), "--trust", "flawed:Flawed", env=env)
    assert (resumed.code, resumed.error) == (0, "")
    assert committed(run_dir) == 4


def test_a_taken_port_is_one_line(run_dir: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = fullrank(
            "train", "--run-dir", str(run_dir), *settings(f"controller.address={address}")
        )
    assert f"cannot listen on {address}" in line_of(outcome, code=4)
    assert not run_dir.exists()


@pytest.mark.smoke
def test_a_directory_that_is_not_empty_is_left_alone(run_dir: Path) -> None:
    run_dir.mkdir()
    (run_dir / "thesis.txt").write_text("precious")
    outcome = fullrank("train", "--run-dir", str(run_dir), *settings())
    assert "is not empty" in line_of(outcome, code=5)
    assert [path.name for path in run_dir.iterdir()] == ["thesis.txt"]


def test_resuming_a_running_run_is_refused_and_does_not_disturb_it(run_dir: Path) -> None:
    endless = settings(ENDLESS, "compute.emulate_unit_s=0.05")
    process = start("train", "--run-dir", str(run_dir), *endless)
    wait_until(lambda: committed(run_dir) >= 1, what="an iteration")
    listening = {path.name for path in (run_dir / "services").iterdir()}
    outcome = fullrank("resume", str(run_dir))
    assert "held by another `fullrank train` or `resume`" in line_of(outcome, code=5)
    assert {path.name for path in (run_dir / "services").iterdir()} == listening
    interrupt(process)
    assert end(process).code == 130


def test_resuming_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    assert "holds no config.toml" in line_of(fullrank("resume", str(tmp_path)), code=2)


@pytest.fixture
def serving(run_dir: Path) -> "list[subprocess.Popen[str]]":
    """A controller and a replay service without learners."""
    words = ("--run-dir", str(run_dir), *settings("iterations=2"))
    started = [start("serve", name, *words) for name in ("replay", "controller")]
    wait_until(lambda: (run_dir / "services" / "controller.json").exists(), what="it listens")
    return started


def test_a_learner_of_another_version_ends_with_both_versions(
    run_dir: Path, serving: "list[subprocess.Popen[str]]"
) -> None:
    older = (
        "import sys, fullrank; fullrank.__version__ = '0.0.1'; "
        "from fullrank.cli import main; main(sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", older, "serve", "learner", "--run-dir", str(run_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    outcome = end(process)
    assert outcome.code == 7
    [line] = [line for line in outcome.error.splitlines() if line.startswith("fullrank: ")]
    assert "version 0.0.1 of the learner differs from the controller's" in line
    for service in serving:
        service.terminate()
        assert end(service).code == 0


def test_a_finished_controller_serves_finished_and_never_retrains(run_dir: Path) -> None:
    assert fullrank("train", "--run-dir", str(run_dir), *settings("iterations=2")).code == 0
    before = {path: path.read_bytes() for path in run_dir.glob("checkpoints/*/state.safetensors")}
    lines = (run_dir / "metrics.jsonl").read_text()
    config = ("--config", str(run_dir / "config.toml"))
    process = start("serve", "controller", "--run-dir", str(run_dir), *config)
    announcement = run_dir / "services" / "controller.json"
    wait_until(announcement.exists, what="it listens")
    assert fullrank("resume", str(run_dir)).code == 5
    assert json.loads(announcement.read_text())["pid"] == process.pid
    process.terminate()
    assert end(process).code == 0
    assert (run_dir / "metrics.jsonl").read_text() == lines
    after = {path: path.read_bytes() for path in run_dir.glob("checkpoints/*/state.safetensors")}
    assert after == before
