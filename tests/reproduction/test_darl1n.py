"""A slice of the reproduction of [DARL1N], through the command."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fullrank_reproduction.cells import run
from fullrank_reproduction.cli import app
from fullrank_reproduction.darl1n import experiment, scales
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.published import ISING
from fullrank_reproduction.darl1n.training.runs import learners

SLICE = scales.Darl1nScale(
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
    monkeypatch.setitem(scales.SCALES, "smoke", SLICE)
    command = ["darl1n", "--output", str(tmp_path)]
    first, second = (CliRunner().invoke(app, command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.stdout.count(": computed") == len(list((tmp_path / "cells").glob("*.json")))
    assert first.stdout.startswith("codes: 23 of 23 cells to compute")
    assert second.stdout == f"claims, tables and pictures: {tmp_path}/README.md\n"
    page = (tmp_path / "README.md").read_text()
    for picture in ("noise", "times", "learning", "scaling", "wireless", "distances"):
        assert (tmp_path / f"{picture}.png").stat().st_size > 10_000
        assert f"({picture}.png)" in page
    for figure in ("Table IV", "Fig. 2", "Fig. 4(b)", "Fig. 5", "Fig. 6"):
        assert figure in page
    assert "Exactly round(eta N) learners straggle. **held**" in " ".join(page.split())


def test_a_page_is_of_the_cells_that_are_there_and_names_the_others(tmp_path: Path) -> None:
    budget = replace(SLICE.budget, seeds=3, iterations=1, every=1)
    scale = replace(SLICE, budget=budget)
    (ising, *_) = (trial for trial in learners(budget, ISING))
    run([ising.cell({}, time.process_time)], tmp_path)
    page = experiment.reproduce(
        scale, tmp_path, clock=time.process_time, done=lambda cell, origin: None, parts=()
    )
    text = " ".join(page.read_text().split())
    assert "ising: 9 of 10 cells to compute" in text
    assert "Table V:" not in text
    assert "converges before MADDPG and MFAC, by the paper's criterion. **undecided**" in text
    assert len(list((tmp_path / "cells").iterdir())) == 1
