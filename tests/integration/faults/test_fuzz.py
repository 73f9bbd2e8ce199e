"""A sample of the million malformed messages that the benchmark tries."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).resolve().parents[3] / "benchmarks" / "fuzz.py"


@pytest.mark.parametrize("seed", [1, 2])
def test_malformed_messages_and_files_are_refused(seed: int) -> None:
    command = [sys.executable, str(PROGRAM), "--messages", "4000", "--seed", str(seed)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
