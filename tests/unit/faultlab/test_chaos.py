"""The fault laboratory summarises its runs and names the seed of one that breaks a guarantee."""

import pytest
from tests.faultlab import simulation
from tests.faultlab.__main__ import chaos
from tests.faultlab.outcome import FaultOutcome, InvariantBroken


def test_a_broken_promise_ends_it_and_names_the_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seed: int, **reference: object) -> FaultOutcome:
        violations = ["live: it does not end"] if seed == 8 else []
        return FaultOutcome(seed, ["0.5 controller killed"], violations)

    monkeypatch.setattr(simulation, "simulate", broken)
    with pytest.raises(InvariantBroken, match=r"run 8 .*does not end.*--seed 8"):
        chaos(schedules=3, seed=7, processes=1)
    assert "controller killed" in capsys.readouterr().out
