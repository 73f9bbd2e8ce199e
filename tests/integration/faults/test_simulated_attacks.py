"""Simulated runs keep all guarantees under colluders, second controllers and lost machines."""

from contextlib import ExitStack

import pytest
from tests.faultlab.simulation import colluders_of, mirrored
from tests.integration.faults.test_simulation import simulated

from fullrank.rounds.quorum import Quorum
from fullrank.runs.mirror import Mirror
from fullrank.runs.mirrored import Claims
from fullrank_controller.persistence import run_directory

pytestmark = pytest.mark.integration

COLLUDED = [seed for seed in range(120) if colluders_of(seed)]
MIRRORED = [seed for seed in range(120) if mirrored(seed)]


def broken_by(seeds: list[int]) -> set[str]:
    """Names of the invariants that some simulated runs break."""
    return {line.partition(":")[0] for seed in seeds for line in simulated(seed).violations}


def test_what_colluders_agree_on_is_never_committed() -> None:
    outcomes = [simulated(seed) for seed in COLLUDED[:6]]
    assert not [outcome for outcome in outcomes if outcome.violations]
    faults = "\n".join(fault for outcome in outcomes for fault in outcome.faults)
    assert "learner 0 lies about iteration" in faults
    assert "learner 1 lies about iteration" in faults


def test_machines_that_are_lost_or_return_lose_and_repeat_nothing() -> None:
    outcomes = [simulated(seed) for seed in MIRRORED[:8]]
    assert not [outcome for outcome in outcomes if outcome.violations]
    faults = "\n".join(fault for outcome in outcomes for fault in outcome.faults)
    for kind in ("machine is lost", "a standby takes over", "a machine returns", "a second contr"):
        assert kind in faults


@pytest.mark.parametrize("seed", [50022, 60311])
def test_a_damaged_checkpoint_takes_no_row_from_a_later_standby(seed: int) -> None:
    """A standby begins with the newest mirrored checkpoint, and with its rows."""
    assert not simulated(seed).violations


def test_an_iteration_that_is_taken_back_draws_the_rows_that_it_drew() -> None:
    """Here two learners cannot agree on the last iteration, and no audit was made before."""
    assert not simulated(20003).violations


def test_a_controller_that_believes_what_colluders_agree_on_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this run a round decodes from a lie that no honest learner has contradicted yet."""
    monkeypatch.setattr(Quorum, "lacking", lambda self, *args, **keywords: {})
    assert "proved" in broken_by([47])


def test_a_mirror_that_lags_behind_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mirror, "store", lambda self, record: None)
    assert "nothing is forgotten" in broken_by([19])


def test_a_controller_that_publishes_after_a_later_claim_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A standby takes this run over between an append to the mirror and its publication."""
    monkeypatch.setattr(Claims, "confirm", lambda self: None)
    assert broken_by([531]) == {"published is known to successors"}


def test_a_directory_that_two_controllers_can_hold_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_directory, "lock_run", lambda run_dir: ExitStack())
    assert "once" in broken_by(MIRRORED[:4])
