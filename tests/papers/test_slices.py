"""A slice of each paper, through the command: it works from an empty directory, and goes on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fullrank_cmarl.queues import measured
from fullrank_cmarl.systems import SCALES as CMARL_SCALES
from fullrank_coded_maddpg import timing
from fullrank_dmcaf import speed
from fullrank_dmcaf.paper import judge_interfaces
from fullrank_dmcaf.speed import SCENARIOS
from fullrank_papers import cli
from fullrank_papers.cells import CELLS
from fullrank_papers.claims import RULES
from fullrank_papers.cli import paper_of, reproduce

SLICES: dict[str, dict[str, Any]] = {
    "coded-maddpg": {
        **{"iterations": 4, "cyclic": 4, "compared": 2, "payload": 2, "batch": 32},
        **{"warmup": 128, "repeats": 1},
        "panels": ("cooperative_navigation",),
    },
    "darl1n": {
        **{"iterations": 2, "every": 1, "batch": 32, "timed": 1, "timed_teams": (3, 6, 12)},
        **{"trials": 100, "sets": 40, "exact_sets": 2, "samples": 100, "draws": 2, "rounds": 5},
        "episodes": 40,
    },
    "cmarl": {"maps": ("3m",), "until_s": 1.0, "points": 1, "episodes": 2},
    "dmcaf": {
        **{"maps": ("3m",), "trained": 2, "episodes": 16, "waits": 500},
        "learnt": {"3m": 900},  # beyond the warm-up of Qmix
        **{"per_iteration": 600, "evaluated": 4, "iterations": 4},
    },
    "multi-gpu": {
        **{"hidden": 16, "agents": (2, 4), "batch": 16, "ranked_agents": (4, 6)},
        **{"batches": (16,), "repeats": 1, "iterations": 2, "learning_batch": 16},
    },
}
PARTS = {"cmarl": "learning", "coded-maddpg": "codes, fig4, fig3, payload"}
"""Services are run for the slice of paper 003."""
SEEDS = {"cmarl": ("11", "12")}
"""One seed is enough to see a slice work, and two to see that all are computed."""
app = typer.Typer()
app.command()(reproduce)


def run(*words: str) -> str:
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 0, (outcome.output, outcome.exception)
    return outcome.stdout


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name",
    [
        *("coded-maddpg", "darl1n", "cmarl", "dmcaf"),
        pytest.param("multi-gpu", marks=pytest.mark.thorough),  # starts 20 processes with torch
    ],
)
def test_a_slice_ends_with_pictures_and_a_page_and_is_gone_on_with(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # away from the results of other scales
    monkeypatch.setattr(timing, "ROUNDS", 20)
    monkeypatch.setattr(timing, "LEARNT", 5)
    monkeypatch.setattr(speed, "ITERATION_S", 0.1)
    monkeypatch.setattr(speed, "SERVED_S", 0.6)
    monkeypatch.setattr(cli, "usable_cores", lambda: 1)  # each worker would import torch
    scales: dict[str, Any] = paper_of(name).scales  # type: ignore[assignment]
    monkeypatch.setitem(scales, "smoke", replace(scales["smoke"], **SLICES[name]))
    seeds, parts = SEEDS.get(name, ("11",)), PARTS.get(name, "")
    command = [name, "--output", str(tmp_path), "--only", parts, "--seeds", ", ".join(seeds)]
    first, second = run(*command), run(*command)
    cells = [json.loads(line) for line in (tmp_path / CELLS).read_text().splitlines()]
    assert first.count(": computed") == len(cells)
    assert {cell["rules"] for cell in cells} == {RULES}
    for seed in seeds:
        assert any(cell["cell"].endswith(seed) for cell in cells)
    assert not any(cell["cell"].endswith("seed0") for cell in cells)
    assert ": computed" not in second
    assert second.splitlines()[-1] == f"claims, tables and pictures: {tmp_path}/README.md"
    page = "".join(path.read_text() for path in tmp_path.glob("*.md"))
    assert "## What differs from the paper\n\n* " in page
    pictures = list(tmp_path.glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size > 10_000
        assert f"({picture.name})" in page
    assert ("Not here yet" in page) == (name in PARTS)


def test_a_part_or_a_scale_that_does_not_exist_is_refused() -> None:
    for words, complaint in (
        (("cmarl", "--only", "football"), "the parts are queues, services, learning"),
        (("multi-gpu", "--scale", "standard"), "its scales are smoke, paper"),
        (("cmarl", "--seeds", "3,3"), "--seeds: '3,3' names no seeds"),
        (("dmcaf", "--seeds", "1,two"), "--seeds: '1,two' names no seeds"),
    ):
        outcome = CliRunner().invoke(app, words)
        assert complaint in str(outcome.exception)


def test_every_map_has_the_papers_interface_and_its_share_of_playing() -> None:
    assert judge_interfaces().held == "an input"
    for scenario in SCENARIOS.values():
        share = scenario.playing_share
        assert 4 / (share + 4 * (1 - share)) == pytest.approx(scenario.ratio("aw"))


@pytest.mark.e2e
def test_the_waits_of_a_container_are_shares_of_its_time() -> None:
    config = CMARL_SCALES["smoke"].config("cmarl-1-container", "3m", 1)
    found = measured(replace(config, containers=replace(config.containers, batch_size=13)), 0.5)
    assert found["blocks"] > 0
    assert found["updates"] > 0
    assert all(0 <= found[part] <= 1 for part in ("between", "lockstep", "idle"))
