"""``fullrank compare``: groups, intervals, exact zeros, and runs that cannot be compared."""

import csv
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from fullrank.config.elsewhere import remember_run

from .conftest import Command, finished


def compared(fullrank: Command, *runs: Path) -> Any:
    words = [str(run) for run in runs]
    outcome = fullrank("compare", *words, "--episodes", "4", "--json")
    assert outcome.code == 0, outcome.error
    return json.loads(outcome.output)


def test_codes_are_compared_seed_by_seed_and_lose_nothing(
    fullrank: Command, tmp_path: Path
) -> None:
    runs = [
        finished(tmp_path / f"{code}-{seed}", seed=seed, code__name=code)
        for code in ("cyclic", "mds")
        for seed in (0, 1)
    ]
    cyclic, mds = compared(fullrank, *runs)["groups"]
    assert (cyclic["seeds"], mds["seeds"]) == ([0, 1], [0, 1])
    assert "code.name = mds" in mds["label"]
    assert cyclic["returns"] == mds["returns"]
    assert cyclic["differences"] == {"team": None}
    assert mds["differences"]["team"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert cyclic["returns"]["team"]["low"] < cyclic["returns"]["team"]["high"]


def test_seeds_that_were_submitted_and_secured_by_names_of_their_own_are_one_group(
    fullrank: Command, tmp_path: Path
) -> None:
    runs = [
        finished(tmp_path / name, seed=seed, name=name, tls__certificates=f"/certs/{name}")
        for seed, name in enumerate(("one", "two"))
    ]
    for run in runs:
        remember_run(run)
    (group,) = compared(fullrank, *runs)["groups"]
    assert group["seeds"] == [0, 1]


def test_the_return_of_one_run_is_what_eval_says_and_has_no_bounds(
    fullrank: Command, tmp_path: Path
) -> None:
    run = finished(tmp_path / "mine")
    (group,) = compared(fullrank, run)["groups"]
    played = fullrank("eval", str(run), "--episodes", "4", "--no-random", "--json").output
    mean = json.loads(played)["trained"]["mean"]
    assert group["returns"]["team"] == {"mean": pytest.approx(mean), "low": None, "high": None}
    assert group["iterations"] == [1]
    assert "inf" not in fullrank("compare", str(run), "--episodes", "4").output


def test_battles_are_compared_by_their_win_rates_too(
    fullrank: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    battles: dict[str, Any] = {"environment__name": "smac_lite", "environment__agents": 0}
    runs = [finished(tmp_path / str(seed), seed=seed, **battles) for seed in (0, 1)]
    (group,) = compared(fullrank, *runs)["groups"]
    assert 0 <= group["win_percent"]["mean"] <= 100
    assert group["win_percent_difference"] is None
    assert [*group["returns"]] == ["team"]
    shown = fullrank("compare", *map(str, runs), "--episodes", "2").output
    assert "win rate in %" in shown


def test_runs_that_cannot_be_compared_are_one_line(fullrank: Command, tmp_path: Path) -> None:
    run = finished(tmp_path / "mine")
    for words, code, message in (
        ((run, run), 2, "same configuration and seed 0"),
        ((run, tmp_path / "gone"), 1, "there is no run"),
    ):
        outcome = fullrank("compare", *map(str, words))
        assert (outcome.code, outcome.output) == (code, "")
        assert message in outcome.error
        assert len(outcome.error.splitlines()) == 1


@pytest.mark.integration
def test_the_figure_and_numbers_of_a_comparison_are_written(
    fullrank: Command, tmp_path: Path
) -> None:
    runs = [
        finished(tmp_path / f"{hidden}-{seed}", seed=seed, algorithm__hidden=hidden)
        for hidden in (8, 16)
        for seed in (0, 1)
    ]
    written = tmp_path / "written"
    words = [*map(str, runs), "--episodes", "3", "--out", str(written)]
    outcome = fullrank("compare", *words)
    assert outcome.code == 0, outcome.error
    assert "undecided, too few runs; probability of improvement" in outcome.output
    assert (written / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert (written / "comparison.pdf").read_bytes().startswith(b"%PDF")
    rows = list(csv.DictReader((written / "scores.csv").open()))
    assert {row["method"] for row in rows} == {"maddpg hidden=8", "maddpg hidden=16"}
    facts = json.loads((written / "marl_eval.json").read_text())
    played = facts["fullrank"]["cooperative_navigation"]["maddpg hidden=8"]["seed_1"]
    returns = played["absolute_metrics"]["return"]
    (row,) = [row for row in rows if (row["method"], row["seed"]) == ("maddpg hidden=8", "1")]
    assert len(returns) == 3
    assert fmean(returns) == pytest.approx(float(row["result"]))
    assert (written / "scores.tex").read_text().count(r"\\") == 3


def test_a_run_whose_greedy_play_does_not_end_is_named(
    fullrank: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.training.evaluation.longest_of", lambda environment: 3)
    run = finished(tmp_path / "mine")
    code, output, error = fullrank("compare", str(run))
    assert (code, output) == (3, "")
    assert error.startswith(f"fullrank: {run}: greedy play does not end: ")
