"""Requirements of the images: lists that follow the distribution's dependencies."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def _names(image: str) -> set[str]:
    lines = (ROOT / f"deploy/requirements/{image}.txt").read_text().splitlines()
    return {line.split("=")[0].rstrip("<>") for line in lines if not line.startswith("#")}


def test_the_lists_are_what_the_distribution_says() -> None:
    command = [sys.executable, str(ROOT / "tools/requirements.py"), "--check"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_each_image_holds_what_the_one_before_it_holds() -> None:
    assert _names("services") < _names("learner") < _names("controller")
    assert _names("dashboard") - _names("services") == {"starlette", "tenacity", "uvicorn"}
    assert "torch" in _names("learner") - _names("services")
