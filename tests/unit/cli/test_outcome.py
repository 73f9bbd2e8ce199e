from pathlib import Path

import pytest

from fullrank.cli import processes
from fullrank.cli.policies import EPISODES, outcome
from fullrank.config import RunConfig, load
from fullrank.local import LocalRun
from fullrank.runs.checkpoint import save
from fullrank.runs.ending import keep_caveat
from fullrank.runs.evaluations import read_evaluations
from fullrank.runs.record import METRICS, IterationRecord, to_line

TINY = (
    "iterations=4",
    "collect.warmup=100",
    "algorithm.batch_size=32",
    "algorithm.hidden=16",
)


def trained_run(directory: Path, *overrides: str) -> RunConfig:
    config = load(environ={}, overrides=[*TINY, *overrides]).check().config
    run = LocalRun(config, coded=False)
    for iteration in run:
        save(
            directory / "checkpoints",
            iteration=iteration.iteration,
            arrays=run.training.state(resume_at=iteration.iteration + 1),
            facts={"term": 1},
            keep=4,
        )
    ended(directory, -700.0)
    return config


def ended(directory: Path, return_mean: float | None) -> None:
    """Write the metrics of a run with one iteration."""
    record = IterationRecord(
        iteration=0,
        term=1,
        epoch=0,
        attempt=0,
        code="cyclic",
        return_mean=return_mean,
        round_s=0.1,
        collect_s=0.1,
        compute_s={},
        decode_s=0.0,
        received=(0,),
        late=(),
        exact=True,
        condition=1.0,
        error_bound=0.0,
        update_digest="",
        bytes_sent={},
        bytes_received={},
    )
    (directory / METRICS).write_text(to_line(record) + "\n")


def test_a_finished_run_is_compared_with_random_play_and_can_be_watched(tmp_path: Path) -> None:
    returned, gap, watch = outcome(tmp_path, trained_run(tmp_path))
    assert returned.startswith("return: -")
    assert f" without exploration, {EPISODES} episodes; random play -" in returned
    assert gap.startswith("gap closed from random play to a good policy (-3")
    assert gap.endswith("%")
    assert watch == f"watch an episode: fullrank render {tmp_path}"


def test_a_resumed_run_is_compared_with_the_evaluation_before(tmp_path: Path) -> None:
    config = trained_run(tmp_path)
    last = tmp_path / "checkpoints"
    hidden = sorted(last.iterdir())[-1]
    kept = hidden.rename(tmp_path / hidden.name)
    list(outcome(tmp_path, config))
    (before,) = read_evaluations(tmp_path)
    kept.rename(hidden)
    lines = list(outcome(tmp_path, config))
    assert lines[2] == f"the evaluation before, at iteration {before.iteration}: {before.returns}"
    assert [each.iteration for each in read_evaluations(tmp_path)] == [before.iteration, 3]


def test_each_side_has_its_line(tmp_path: Path) -> None:
    config = trained_run(tmp_path, "environment.name=predator_prey")
    names = [line.split()[0].rstrip(":") for line in outcome(tmp_path, config)]
    assert names == ["return", "predator", "prey", "watch"]


def test_what_cannot_be_drawn_is_not_offered(tmp_path: Path) -> None:
    config = trained_run(tmp_path, "environment.name=ising")
    assert not any("render" in line for line in outcome(tmp_path, config))


def test_no_episode_is_played_where_none_has_ended(tmp_path: Path) -> None:
    config = trained_run(tmp_path)
    ended(tmp_path, None)
    assert list(outcome(tmp_path, config)) == ["no episode ended, so there is no return to report"]
    assert not read_evaluations(tmp_path)


def test_what_a_run_has_lost_is_said_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(processes, "run_in_process", lambda *_: keep_caveat(tmp_path, "rows lost"))
    ended(tmp_path, None)
    processes.run_to_end(tmp_path, RunConfig(), local=True, coding=False)
    finished, *said = capsys.readouterr().out.splitlines()
    assert finished.startswith("finished: ")
    assert said == ["caveat: rows lost", "no episode ended, so there is no return to report"]


def test_greedy_play_without_end_is_said_and_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.training.evaluation.longest_of", lambda environment: 3)
    (line,) = outcome(tmp_path, trained_run(tmp_path))
    assert line == (
        "greedy play does not end: an episode has had 3 steps; give the environment a time limit"
    )
    assert not read_evaluations(tmp_path)
