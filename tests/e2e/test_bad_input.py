"""Bad input: one clear line, a documented exit code, nothing half-written."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.commands import (
    Outcome,
    committed,
    fullrank,
    processes_of,
    settings,
)

from fullrank.cli import main

pytestmark = pytest.mark.e2e


Here = Callable[..., Outcome]
"""Runs a command in this process, which is enough where it ends before it starts another one."""


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    def run(*words: str) -> Outcome:
        with pytest.raises(SystemExit) as end:
            main(words)
        printed = capsys.readouterr()
        return Outcome(code=int(end.value.code or 0), output=printed.out, error=printed.err)

    return run


def line_of(outcome: Outcome, *, code: int) -> str:
    """The single line that a command printed as its error."""
    lines = outcome.error.splitlines()
    assert len(lines) == 1, outcome.error
    assert lines[0].startswith("fullrank: ")
    assert outcome.code == code
    return lines[0]


ENVIRONMENT = """
from pettingzoo.utils import BaseParallelWrapper
from fullrank.environments.parallel import parallel_env


class Flawed(BaseParallelWrapper):
    def __init__(self):
        super().__init__(parallel_env("cooperative_navigation", agents=3))
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
    changed = line_of(fullrank("run", "resume", "--attach", str(run_dir), env=env), code=2)
    assert f"{module} changed since this user trained it" in changed
    resumed = fullrank(
        "run", "resume", "--attach", str(run_dir), "--trust", "flawed:Flawed", env=env
    )
    assert (resumed.code, resumed.error) == (0, "")
    assert committed(run_dir) == 4


@pytest.mark.smoke
def test_a_directory_that_is_not_empty_is_left_alone(run_dir: Path, here: Here) -> None:
    run_dir.mkdir()
    (run_dir / "thesis.txt").write_text("precious")
    outcome = here("train", "--run-dir", str(run_dir), *settings())
    assert "is not empty" in line_of(outcome, code=5)
    assert [path.name for path in run_dir.iterdir()] == ["thesis.txt"]


def test_resuming_what_is_no_run_is_one_line(tmp_path: Path, here: Here) -> None:
    assert "holds no config.toml" in line_of(
        here("run", "resume", "--attach", str(tmp_path)), code=2
    )
