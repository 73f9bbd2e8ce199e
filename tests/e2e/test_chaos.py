"""Real services under injected faults commit the bits of the fault-free run."""

import pytest
from tests.e2e.commands import fullrank

from fullrank_faultlab import service_faults
from fullrank_faultlab.service_runs import Mode

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("mode", [Mode.KEYED, Mode.FREE])
def test_a_run_under_repeated_faults_ends_as_if_nothing_had_happened(mode: Mode) -> None:
    number = list(Mode).index(mode)
    played = fullrank("chaos", "--services", "--schedules", "1", "--seed", str(number))
    assert played.code == 0, played.output + played.error
    seed, *injected, summary = played.output.splitlines()
    assert seed == f"seed {number}:"
    assert len(injected) == service_faults.FAULTS
    assert summary.startswith(f"1 runs, {service_faults.FAULTS} faults, no violation")
