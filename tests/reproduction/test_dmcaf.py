"""A slice of the reproduction of [DMCAF], through the command."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fullrank_reproduction.cli import app
from fullrank_reproduction.dmcaf import experiment, speed
from fullrank_reproduction.dmcaf.published import SCENARIOS

SLICE = experiment.DmcafScale(
    name="slice",
    maps=("3m",),
    iterations=8,
    trained=2,
    episodes=16,
    waits=500,
    learnt=("3m",),
    steps=300,
    seeds=2,
)


def test_the_share_of_playing_gives_back_the_papers_ratio() -> None:
    for scenario in SCENARIOS.values():
        share = scenario.playing_share
        assert 4 / (share + 4 * (1 - share)) == pytest.approx(scenario.aw_ratio)


def test_every_map_has_the_papers_interface() -> None:
    assert experiment.judge_interfaces().held == "held"


@pytest.mark.e2e
def test_a_slice_ends_with_pictures_and_a_page_and_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(experiment.SCALES, "smoke", SLICE)
    monkeypatch.setattr(speed, "ITERATION_S", 0.2)
    command = ["dmcaf", "--output", str(tmp_path)]
    first, second = (CliRunner().invoke(app, command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), first.output
    assert first.stdout.count(": computed") == len(list((tmp_path / "cells").glob("*.json")))
    assert second.stdout == f"claims, tables and pictures: {tmp_path}/README.md\n"
    page = (tmp_path / "README.md").read_text()
    for picture in ("speed", "waiting", "memory", "learning"):
        assert (tmp_path / f"{picture}.png").stat().st_size > 10_000
        assert f"({picture}.png)" in page
    for claim in range(1, 9):
        assert f"D{claim}: " in page
