"""Real services under injected faults commit the bits of the fault-free run."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.faultlab.service_runs import Mode
from tests.faultlab.service_schedule import (
    LOST,
    LYING,
    OUTNUMBERED,
    schedule_of,
)

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("mode", "seed", "attacks"),
    [
        (Mode.KEYED, 343, {LOST, LYING}),
        pytest.param(Mode.FREE, 14, {LOST, OUTNUMBERED}, marks=pytest.mark.thorough),
    ],
)
def test_a_run_under_repeated_faults_ends_as_if_nothing_had_happened(
    mode: Mode, seed: int, attacks: set[str]
) -> None:
    drawn = schedule_of(seed, mode=mode)
    assert Mode.of(seed) is mode
    assert attacks <= {fault.kind for fault in drawn}
    command = [sys.executable, "-m", "tests.faultlab", "--services", "--schedules", "1"]
    played = subprocess.run(
        [*command, "--seed", str(seed)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stdout + played.stderr
    first, *injected, summary = played.stdout.splitlines()
    assert first == f"seed {seed}:"
    for fault, line in zip(drawn, injected, strict=True):
        assert f"{fault.service}: {fault.kind}" in line
    assert summary.startswith(f"1 runs, {len(drawn)} faults, no violation")
