"""``fullrank bench``: every combination is trained once, resumed where begun, and compared."""

import csv
import json
from pathlib import Path

import pytest

from fullrank.cli.compare import Bench
from fullrank.common.errors import NoEnd, RunDirectoryInUse

from .conftest import Command

FILE = """
directory = "{directory}"
algorithms = ["vdn", {{ name = "iql", hidden = 8 }}]
tasks = ["two_step_game"]
seeds = [0, 1]
[common]
iterations = {iterations}
collect.warmup = 16
environment.copies = 2
algorithm.batch_size = 4
metrics.sinks = []
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(FILE.format(directory=tmp_path / "runs", iterations=2))
    return path


def test_combinations_are_trained_once_and_compared_and_one_that_was_begun_goes_on(
    fullrank: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = fullrank("bench", str(file))
    assert outcome.code == 0, outcome.error
    assert "run 4 of 4" in outcome.output
    assert "probability of improvement" in outcome.output
    runs = file.parent / "runs"
    with (runs / "comparison" / "scores.csv").open() as scores:
        rows = [(row["method"], row["seed"]) for row in csv.DictReader(scores)]
    assert sorted(rows) == [
        ("iql", "0"), ("iql", "1"), ("vdn", "0"), ("vdn", "1"),
    ]  # fmt: skip
    metrics = {path: path.read_bytes() for path in runs.glob("*/metrics.jsonl")}
    assert len(metrics) == 4

    (begun, *_) = sorted(runs.glob("*-seed0"))
    identity = json.loads((begun / "run.json").read_text())
    assert identity.pop("ending")["state"] == "finished"
    (begun / "run.json").write_text(json.dumps(identity))
    resumed: list[Path] = []
    monkeypatch.setattr("fullrank.cli.compare.go_on", lambda path, local: resumed.append(path))
    again = fullrank("bench", str(file))
    assert (again.code, resumed) == (0, [begun]), again.error
    assert {path: path.read_bytes() for path in metrics} == metrics

    file.write_text(FILE.format(directory=runs, iterations=3))
    other = fullrank("bench", str(file))
    assert (other.code, "other settings than the bench" in other.error) == (2, True)


@pytest.mark.integration
def test_a_run_that_fails_does_not_keep_the_others_from_training(
    fullrank: Command, file: Path
) -> None:
    runs = file.parent / "runs"
    occupied = runs / "two_step_game-vdn-seed1"
    occupied.mkdir(parents=True)
    (occupied / "thesis.txt").touch()
    outcome = fullrank("bench", str(file))
    assert outcome.code == RunDirectoryInUse.exit_code
    said, last = outcome.error.splitlines()[0], outcome.error.splitlines()[-1]
    assert said.startswith("failed: ")
    assert last.startswith(f"fullrank: 1 of 4 runs failed: {occupied}: ")
    with (runs / "comparison" / "scores.csv").open() as scores:
        assert len([*csv.DictReader(scores)]) == 3
    assert [*occupied.iterdir()] == [occupied / "thesis.txt"]


def test_a_run_whose_greedy_play_does_not_end_has_failed(
    fullrank: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.training.evaluation.longest_of", lambda environment: 1)
    small = file.read_text().replace("[0, 1]", "[0]").replace('"vdn", ', "")
    file.write_text(small)
    outcome = fullrank("bench", str(file))
    assert outcome.code == NoEnd.exit_code
    assert "finished: 2 iterations" in outcome.output
    assert "fullrank: 1 of 1 runs failed: " in outcome.error
    assert "greedy play does not end" in outcome.error


def test_settings_are_combined_with_all_others(tmp_path: Path) -> None:
    bench = Bench(
        algorithms=["vdn", "iql"],
        tasks=["two_step_game", {"name": "smac_lite", "map": "3m"}],
        seeds=[3, 4],
        settings={"a": {"algorithm": {"hidden": 8}}, "b": {"algorithm": {"hidden": 16}}},
        common={"iterations": 7, "algorithm": {"discount": 0.5, "hidden": 32}},
        directory=str(tmp_path),
    )
    runs = bench.runs()
    assert len(runs) == 16
    config = runs[tmp_path / "smac_lite-map=3m-iql-b-seed4"].config
    assert (config.environment.name, config.algorithm.name) == ("smac_lite", "iql")
    assert config.algorithm.params == {"discount": 0.5, "hidden": 16}
    assert (config.seed, config.iterations) == (4, 7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [0, 1]", "seeds = [0, 0]", "two runs"),
        ("seeds", "seed", "seed"),
        ('"vdn"', '"vnd"', "unknown algorithm 'vnd'"),
        ("[common]", "[settings.x]\nseed = 7\n[common]", "[settings.x] sets seed"),
        (
            "[common]",
            '[settings.x]\nalgorithm.name = "qmix"\n[common]',
            "[settings.x] sets algorithm.name",
        ),
        (
            "[common]",
            '[settings.x]\nenvironment.name = "cooperative_navigation"\n[common]',
            "[settings.x] sets environment.name",
        ),
        (
            "[common]",
            "[settings.x]\nalgorithm.hidden = 8\n[settings.y]\nalgorithm.hidden = 8\n[common]",
            "have the same configuration and seed 0",
        ),
    ],
)
def test_a_wrong_file_is_one_line_and_trains_nothing(
    fullrank: Command, file: Path, old: str, new: str, message: str
) -> None:
    file.write_text(file.read_text().replace(old, new))
    outcome = fullrank("bench", str(file))
    assert (outcome.code != 0, outcome.output) == (True, "")
    assert message in outcome.error
    assert len(outcome.error.splitlines()) == 1
    assert not (file.parent / "runs").exists()
