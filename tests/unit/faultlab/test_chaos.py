"""``fullrank chaos`` sums up its schedules and names the seed of one that broke a promise."""

import pytest

from fullrank.common.errors import InvariantBroken
from fullrank_faultlab import rehearsal
from fullrank_faultlab.cli import chaos


def test_what_was_played_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    chaos(schedules=3, seed=7, processes=1)
    assert capsys.readouterr().out.startswith("3 schedules, ")


def test_a_broken_promise_ends_it_and_names_the_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(seed: int, **reference: object) -> rehearsal.Outcome:
        wrong = ["live: it does not end"] if seed == 8 else []
        return rehearsal.Outcome(seed, ["0.5 controller killed"], wrong)

    monkeypatch.setattr(rehearsal, "rehearse", broken)
    with pytest.raises(InvariantBroken, match=r"schedule 8 .*does not end.*--seed 8"):
        chaos(schedules=3, seed=7, processes=1)
    assert "controller killed" in capsys.readouterr().out
