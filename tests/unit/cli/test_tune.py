"""``fullrank tune``: choices, interruptions and refusals; runs train within the test process."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fullrank.cli import tune_directory
from fullrank.config import read_config
from fullrank.config.tree import RunConfig
from fullrank.local import LocalRun
from fullrank.runs.checkpoint import save
from fullrank.runs.halving import FILE
from fullrank.runs.record import METRICS
from fullrank.training.evaluation import Act, Evaluation

from .conftest import SMALL, Command
from .test_outcome import ended

WORDS = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
WORDS += ["--local", "--iterations", "4", "--set", "checkpoint.every=1"]
RATES = "algorithm.learning_rate=0.1,0.01,0.001"


def train(run: Path) -> None:
    """Train the run anew, with a checkpoint after every iteration."""
    config = read_config(run)
    assert config.checkpoint.keep >= 6
    training = LocalRun(config, coded=False)
    for each in training:
        arrays = training.training.state(resume_at=each.iteration + 1)
        save(run / "checkpoints", iteration=each.iteration, arrays=arrays, facts={}, keep=6)
    ended(run, -1.0)


@pytest.fixture(autouse=True)
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The runs trained, one entry for each time."""
    began: list[Path] = []

    def remembered(run: Path) -> None:
        began.append(run)
        train(run)

    monkeypatch.setattr(tune_directory, "_train_in_one_process", remembered)
    return began


@pytest.fixture
def tuned(fullrank: Command, tmp_path: Path) -> Path:
    """An uninterrupted tune of three learning rates."""
    outcome = fullrank("tune", RATES, *WORDS, "--run-dir", str(tmp_path / "tuned"))
    assert outcome.code == 0, outcome.error
    assert outcome.output.count("goes on: ") == 2
    assert "1.75 times the cost of one run" in outcome.output
    return tmp_path / "tuned"


def test_each_rung_keeps_the_better_half_by_its_evaluations(
    tuned: Path, trained: list[Path]
) -> None:
    facts = json.loads((tuned / FILE).read_text())
    assert facts["rungs"] == [1, 2]
    for decision in facts["decisions"]:
        returns = decision["returns"]
        assert min(returns[each] for each in decision["kept"]) >= max(
            returns[each] for each in decision["dropped"]
        )
    known = facts["evaluations"][facts["chosen"]]
    assert facts["decisions"][-1]["returns"][facts["chosen"]] == pytest.approx(
        np.mean([known["1"], known["2"]])
    )
    chosen = tuned / f"algorithm.learning_rate={facts['chosen']}"
    assert read_config(chosen).iterations == 4
    assert read_config(chosen).algorithm.params["learning_rate"] == float(facts["chosen"])
    lengths = sorted(read_config(run).iterations for run in set(trained))
    assert lengths == [1, 2, 4]


@pytest.mark.parametrize(
    ("interrupted", "saved"),
    [
        (3, True),
        *(pytest.param(n, False, marks=pytest.mark.thorough) for n in range(6)),
        *(pytest.param(n, True, marks=pytest.mark.thorough) for n in range(6) if n != 3),
    ],
)
def test_an_interrupted_tune_goes_on_to_the_same_choice(
    interrupted: int,
    saved: bool,
    fullrank: Command,
    tuned: Path,
    trained: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before a run trains, or when it has and nothing is evaluated."""
    whole, again = list(trained), tmp_path / "again"
    trained.clear()
    remembered = tune_directory._train_in_one_process

    def stopped(run: Path) -> None:
        if len(trained) < interrupted or saved:
            remembered(run)
        if len(trained) >= interrupted + saved:
            raise KeyboardInterrupt

    monkeypatch.setattr(tune_directory, "_train_in_one_process", stopped)
    outcome = fullrank("tune", RATES, *WORDS, "--run-dir", str(again))
    assert outcome.code == 130
    assert outcome.output.endswith(f"stopped; continue with: fullrank resume --local {again}\n")
    monkeypatch.setattr(tune_directory, "_train_in_one_process", remembered)
    assert fullrank("resume", "--local", str(again)).code == 0
    assert (again / FILE).read_bytes() == (tuned / FILE).read_bytes()
    assert [run.name for run in trained[: len(whole)]] == [run.name for run in whole]


def test_of_equal_returns_the_first_value_wins(fullrank: Command, tmp_path: Path) -> None:
    """Codes change no bit."""
    words = (*WORDS, "--run-dir", str(tmp_path / "tune"))
    assert fullrank("tune", "code.name=mds,cyclic,replication", *words).code == 0
    facts = json.loads((tmp_path / "tune" / FILE).read_text())
    assert len(set(facts["decisions"][0]["returns"].values())) == 1
    assert facts["decisions"][0]["kept"] == ["mds", "cyclic"]
    assert facts["chosen"] == "mds"


def playing(returns: Iterator[float]) -> object:
    """Evaluations with these returns of the team, and their negatives for the other side."""

    def play(config: RunConfig, act: Act, *, episodes: int, seed: int) -> Evaluation:
        value = np.full(episodes, next(returns))
        sides = {"predator": -value, "prey": value}
        return Evaluation(value, sides, np.ones(episodes, np.int64))

    return play


@pytest.mark.parametrize(
    ("side", "chosen"),
    [((), "0.01"), (("--side", "prey"), "0.01"), (("--side", "predator"), "0.1")],
)
def test_the_return_of_the_side_decides(
    side: tuple[str, ...],
    chosen: str,
    fullrank: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tune_directory, "play", playing(iter([1.0, 1.0, 2.0, 2.0])))
    words = (*WORDS, "--env", "predator_prey", "--agents", "4", "--run-dir", str(tmp_path / "tune"))
    outcome = fullrank("tune", "algorithm.learning_rate=0.1,0.01", *words, *side)
    assert outcome.code == 0, outcome.error
    assert json.loads((tmp_path / "tune" / FILE).read_text())["chosen"] == chosen


def test_a_return_that_is_not_finite_is_one_line(
    fullrank: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_directory, "play", playing(iter([1.0, float("nan")])))
    tune = tmp_path / "tune"
    code, _, error = fullrank("tune", RATES, *WORDS, "--run-dir", str(tune))
    assert (code, len(error.splitlines())) == (1, 1)
    run = tune / "algorithm.learning_rate=0.01"
    assert f"{run} returns nan at iteration 1" in error
    assert "tune algorithm.learning_rate without 0.01" in error


@pytest.mark.parametrize(
    ("setting", "words", "complaint"),
    [
        ("seed=1", (), "1 value leaves no choice: give several, such as 0.1,0.2"),
        ("seed", (), "seed: expected key=value,value, for example seed=0,1"),
        ("seed=1,,2", (), "expected key=value,value"),
        ("seed=1,2,1", (), "seed=1,2,1: 1 is there twice; name each value once"),
        ("seeds=1,2", (), "unknown key 'seeds' in --set"),
        ("algorithm.rate=1,2", (), "rate"),
        ("algorithm.learning_rate=0.1,low", (), "'low'"),
        ("iterations=100,200", (), "iterations cannot be tuned"),
        ("seed=1,2", ("--seed", "3"), "seed is tuned, and an option sets it to 3: drop one"),
        ("code.name=a/b,a_b", (), "a/b is there twice"),
        ("seed=1,2,3", ("--rungs", "3,2"), "must ascend between 0 and the end, iteration 4"),
        ("seed=1,2", ("--rungs", "4"), "must ascend between 0 and the end, iteration 4"),
        ("seed=1,2", ("--rungs", "1,2"), "2 rungs do not leave one of 2 values"),
        ("seed=1,2", ("--rungs", "half"), "--rungs half: expected numbers of iterations"),
        ("seed=1,2", ("--side", "prey"), "--side prey: the environment has team"),
    ],
)
def test_an_impossible_tune_is_one_line_and_leaves_nothing(
    setting: str, words: tuple[str, ...], complaint: str, fullrank: Command, tmp_path: Path
) -> None:
    code, output, error = fullrank(
        "tune", setting, *WORDS, *words, "--run-dir", str(tmp_path / "t")
    )
    assert (code, output, len(error.splitlines())) == (2, "", 1)
    assert complaint in error
    assert not (tmp_path / "t").exists()


def test_a_damaged_file_is_one_line(fullrank: Command, tuned: Path) -> None:
    (tuned / FILE).write_text("{")
    code, _, error = fullrank("resume", "--local", str(tuned))
    assert code == 1
    assert error.startswith(f"fullrank: {tuned / FILE} is damaged (tune.json: Invalid JSON: ")
    assert error.endswith("); tune anew in another directory\n")
    assert not (tuned / METRICS).exists()
