"""A slice of the reproduction of [DARL1N], through the command."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fullrank_reproduction.cli import app
from fullrank_reproduction.darl1n import experiment
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget

SLICE = experiment.Darl1nScale(
    name="slice",
    budget=Darl1nBudget(
        sizes=1,
        iterations=4,
        every=2,
        batch=32,
        seeds=1,
        timed=1,
        draws=1,
        episodes=4,
        timed_teams=(3, 6, 12),
    ),
    trials=300,
    sets=40,
    exact_sets=2,
    samples=100,
    draws=2,
    rounds=5,
)


@pytest.mark.e2e
def test_a_slice_ends_with_pictures_and_a_page_and_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(experiment.SCALES, "smoke", SLICE)
    command = ["darl1n", "--output", str(tmp_path)]
    first, second = (CliRunner().invoke(app, command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout.count(": computed") == len(list((tmp_path / "cells").glob("*.json")))
    assert second.stdout == f"claims, tables and pictures: {tmp_path}/README.md\n"
    page = (tmp_path / "README.md").read_text()
    for picture in ("noise", "times", "learning", "scaling", "wireless", "distances"):
        assert (tmp_path / f"{picture}.png").stat().st_size > 10_000
        assert f"({picture}.png)" in page
    for figure in ("Table IV", "Fig. 2", "Fig. 4(b)", "Fig. 5", "Fig. 6"):
        assert figure in page
    assert "Exactly round(eta N) learners straggle. **held**" in " ".join(page.split())
