"""Tests marked ``gpu`` fail where what they compute could not be captured."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import logging

import pytest
from tests.conftest import captured_on_cuda


@pytest.mark.gpu
@pytest.mark.parametrize("event", ["not_captured device=cuda reason=waits", "captured"])
def test_on_a_card(event):
    logging.getLogger("fullrank.networks.fused.cuda").warning(event)


def test_elsewhere():
    logging.getLogger("fullrank.networks.fused.cuda").warning("not_captured device=cpu")
"""


def test_a_test_on_a_card_in_which_a_capture_failed_fails(tmp_path: Path) -> None:
    (tmp_path / "test_card.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a card\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_card.py"]
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "AssertionError: not_captured device=cuda reason=waits" in done.stdout
