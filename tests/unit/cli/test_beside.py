"""Returns without exploration while a run trains: what is played, how long, and for which bits."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from fullrank.cli.beside import FREE_S, Beside, Stopped, TimeShare, _cpu_s
from fullrank.cli.policies import environment_beside, follow
from fullrank.common.errors import NoEnd
from fullrank.common.types import JSON
from fullrank.config import RunConfig, load
from fullrank.environments import Environment
from fullrank.environments.processes import EnvironmentProcess
from fullrank.local import LocalRun
from fullrank.runs.checkpoint import save
from fullrank.runs.evaluations import EVALUATIONS, read_evaluations
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.progress import ReferenceReturns
from fullrank.training.evaluation import Act, Evaluation, Greedy, evaluate

TINY = (
    "iterations=4",
    "environment.agents=2",
    "collect.warmup=100",
    "algorithm.batch_size=32",
    "algorithm.hidden=16",
    "metrics.sinks=[]",
)


def tiny(*overrides: str) -> RunConfig:
    return load(environ={}, overrides=[*TINY, *overrides]).check().config


class Resting:
    """A rest that ends the work once a number of looks have found nothing more to do."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def __call__(self, wait_s: float) -> None:
        if wait_s and not self.left:
            raise Stopped
        self.left -= bool(wait_s)


def played(path: Path, config: RunConfig, *, looks: int = 1) -> list[ReferenceReturns]:
    standings: list[ReferenceReturns] = []
    environment = environment_beside(config)
    if isinstance(environment, EnvironmentProcess):
        environment.begin()
        assert _cpu_s(environment.pid) > 0.0
    with pytest.raises(Stopped):
        follow(path, config, environment, Resting(looks), standings.append)
    environment.close()
    return standings


def test_references_come_first_then_each_newest_checkpoint_once(tmp_path: Path) -> None:
    config = tiny()
    run = LocalRun(config, coded=False)
    assert [*map(str, played(tmp_path, config))] == [""]  # of no checkpoint
    for iteration in run:
        state = run.training.state(resume_at=iteration.iteration + 1)
        facts: JSON = {"term": 1}
        folder = tmp_path / CHECKPOINTS
        save(folder, iteration=iteration.iteration, arrays=state, facts=facts, keep=4)
    first, second = played(tmp_path, config, looks=3)
    assert first.random is not None
    assert first.good is not None
    assert second == replace(first, greedy=second.greedy, iterations=4)
    (record,) = read_evaluations(tmp_path)
    assert (record.iteration, record.term, record.returns.mean) == (3, 1, second.greedy)
    line = (tmp_path / EVALUATIONS).read_text()
    assert all(f'"{name}"' in line for name in ("random", "good", "gap_closed"))
    assert played(tmp_path, config) == [first]  # it was evaluated before


def test_policies_by_which_an_episode_does_not_end_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(environment: Environment, act: Act, *facts: int, **told: Any) -> Evaluation:
        if isinstance(act, Greedy):
            raise NoEnd("greedy play does not end")
        return evaluate(environment, act, *facts, **told)

    monkeypatch.setattr("fullrank.cli.policies.evaluate", endless)
    config = tiny()
    state = LocalRun(config, coded=False).training.state(resume_at=0)
    save(tmp_path / CHECKPOINTS, iteration=0, arrays=state, facts={}, keep=1)
    (standing,) = played(tmp_path, config, looks=3)
    assert standing.greedy is None
    assert not read_evaluations(tmp_path)


@pytest.mark.integration
def test_what_is_played_changes_no_bit_of_the_run(tmp_path: Path) -> None:
    config = tiny()

    def digests(*, beside: bool) -> Iterator[str]:
        run = LocalRun(config, coded=False)
        for iteration in run:
            if beside:
                state = run.training.state(resume_at=iteration.iteration + 1)
                number = iteration.iteration
                save(tmp_path / CHECKPOINTS, iteration=number, arrays=state, facts={}, keep=1)
                assert len(played(tmp_path, config)) == 2
            yield run.training.trainer.digest()

    assert [*digests(beside=True)] == [*digests(beside=False)]


def test_networks_that_are_too_large_are_not_held_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.cli.policies.MOST_BYTES", 1000)
    config = tiny()
    with pytest.raises(Exception, match="too large to be held twice"):
        follow(tmp_path, config, environment_beside(config), Resting(1), lambda standing: None)


@pytest.mark.integration
def test_an_environment_of_another_package_is_played_in_a_process_of_its_own(
    tmp_path: Path,
) -> None:
    config = tiny("environment.name=mpe2.simple_v3:parallel_env", "environment.agents=0")
    environment = environment_beside(config)
    assert isinstance(environment, EnvironmentProcess)
    environment.close()
    (standing,) = played(tmp_path, config)
    assert standing.random is not None
    assert standing.good is None


class Time(Event):
    """Seconds that pass by waiting and by working alone."""

    now_s = worked_s = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now_s += max(0.0, timeout or 0.0)
        return self.is_set()

    def work(self, seconds: float) -> None:
        self.now_s += seconds
        self.worked_s += seconds


def test_work_keeps_to_its_share_of_the_time_here_and_in_another_process() -> None:
    time, process = Time(), Time()
    share = TimeShare(0.02, time, clock=lambda: time.now_s, worked=lambda: time.worked_s)
    time.work(5.0)  # imports
    share.begin(lambda: process.worked_s)
    began_s = time.now_s
    for _ in range(50):
        time.work(0.1)
        process.work(0.2)
        share.rest()
    assert time.now_s - began_s == pytest.approx((50 * 0.3 - FREE_S) / 0.02)
    before_s = time.now_s
    share.rest(7.0)
    assert time.now_s == before_s + 7.0
    time.set()
    with pytest.raises(Stopped):
        share.rest()


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, message: str) -> None:
        self.lines.append(message)


def test_a_failure_beside_the_run_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fullrank.cli.beside.BEGIN_S", 0.0)
    shown = Said()
    beside = Beside(tmp_path, tiny("environment.name=there.is:none"), shown)  # type: ignore[arg-type]
    beside._play()
    (line,) = shown.lines
    assert line.startswith("no returns without exploration: ")
