"""Real services under injected faults commit the bits of the fault-free run."""

import pytest
from tests.e2e.commands import fullrank

from fullrank_faultlab import service_faults

pytestmark = pytest.mark.e2e


def test_a_run_under_repeated_faults_ends_as_if_nothing_had_happened() -> None:
    played = fullrank("chaos", "--services", "--schedules", "1", "--seed", "1")
    assert played.code == 0, played.output + played.error
    seed, *injected, summary = played.output.splitlines()
    assert seed == "seed 1:"
    assert len(injected) == service_faults.FAULTS
    assert summary.startswith(f"1 runs, {service_faults.FAULTS} faults, no violation")
