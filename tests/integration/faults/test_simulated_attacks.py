"""Simulated runs keep all guarantees under colluders, second controllers and lost machines."""

from contextlib import ExitStack

import pytest
from tests.faultlab.simulation import colluders_of, stored
from tests.integration.faults.test_simulation import simulated

from fullrank.rounds.quorum import Quorum
from fullrank.runs.objects import DirectoryObjects
from fullrank.runs.store import SharedStore
from fullrank_controller.persistence import run_directory

pytestmark = pytest.mark.integration

COLLUDED = [seed for seed in range(120) if colluders_of(seed)]
STORED = [seed for seed in range(120) if stored(seed)]


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
    outcomes = [simulated(seed) for seed in STORED[:8]]
    assert not [outcome for outcome in outcomes if outcome.violations]
    faults = "\n".join(fault for outcome in outcomes for fault in outcome.faults)
    for kind in (
        "machine is lost",
        "another machine goes on",
        "a machine returns",
        "a second contr",
    ):
        assert kind in faults


@pytest.mark.parametrize("seed", [50022, 60311])
def test_a_damaged_checkpoint_takes_no_row_from_a_later_controller(seed: int) -> None:
    """A controller elsewhere begins with the newest stored checkpoint, and with its rows."""
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


def test_a_store_that_lags_behind_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedStore, "ship", lambda self, *rows: None)
    assert "nothing is forgotten" in broken_by(STORED[:4])


def test_a_log_whose_entries_can_be_replaced_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(self: DirectoryObjects, name: str, content: bytes) -> bool:
        self.put(name, content)
        return True

    monkeypatch.setattr(DirectoryObjects, "create", replaced)
    monkeypatch.setattr(SharedStore, "_check_fence", lambda self: None)
    assert "published is known to successors" in broken_by(STORED[:12])


def test_a_directory_that_two_controllers_can_hold_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_directory, "lock_run", lambda run_dir: ExitStack())
    assert "once" in broken_by(STORED[:4])
