"""The benchmark of a CUDA device, whose program a CPU runs at small sizes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.thorough]

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "one_device.py"


def test_the_benchmark_of_a_device_runs_on_a_cpu() -> None:
    command = [sys.executable, str(PROGRAM), "--device", "cpu", "--rounds", "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    for cell in ("| 8 | 128 | yes | 0.0e+00 |", "| 4 | 512 | fullrank |", "| agent by agent |"):
        assert cell in found.stdout
