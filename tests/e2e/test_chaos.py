"""Real services under injected faults commit the bits of the fault-free run."""

import pytest
from tests.e2e.commands import fullrank

from fullrank_faultlab.service_runs import Mode
from fullrank_faultlab.service_schedule import (
    LOST,
    LYING,
    OUTNUMBERED,
    schedule_of,
)

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("mode", "seed", "attacks"),
    [(Mode.KEYED, 10, {LOST, LYING}), (Mode.FREE, 8, {LOST, OUTNUMBERED})],
)
def test_a_run_under_repeated_faults_ends_as_if_nothing_had_happened(
    mode: Mode, seed: int, attacks: set[str]
) -> None:
    drawn = schedule_of(seed, mode=mode)
    assert Mode.of(seed) is mode
    assert attacks <= {fault.kind for fault in drawn}
    played = fullrank("chaos", "--services", "--schedules", "1", "--seed", str(seed))
    assert played.code == 0, played.output + played.error
    first, *injected, summary = played.output.splitlines()
    assert first == f"seed {seed}:"
    for fault, line in zip(drawn, injected, strict=True):
        assert f"{fault.service}: {fault.kind}" in line
    assert summary.startswith(f"1 runs, {len(drawn)} faults, no violation")
