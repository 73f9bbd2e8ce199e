"""Stages, populations, selection and resumption of EPC."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.algorithms.actor_critic import Hyperparameters
from fullrank.common.errors import CheckpointUnusable, ConfigError
from fullrank.common.seeding import derive
from fullrank.environments import Environment
from fullrank.training.evaluation import Act, Evaluation, Greedy, evaluate
from fullrank_reproduction.baselines.epc import practice
from fullrank_reproduction.baselines.epc.curriculum import Curriculum, Stage
from fullrank_reproduction.baselines.epc.population import TrainedTeam, best, mixed, train
from fullrank_reproduction.baselines.epc.practice import Point, Practice

PRACTICE = Practice(
    copies=2,
    steps=2,
    warmup=8,
    evaluate_every=2,
    episodes=2,
    learning=Hyperparameters(batch_size=8),
)

ASKED = 1 + 2 * 3
"""Number of clock readings in a run of three iterations with three evaluations."""


def stages(*agents: int) -> tuple[Stage, ...]:
    return tuple(Stage(agents=number, iterations=3) for number in agents)


def foraging(*agents: int, **settings: Any) -> Curriculum:
    return Curriculum(
        environment="food_collection",
        params={"horizon": 3},
        stages=stages(*agents),
        practice=PRACTICE,
        **settings,
    )


def ticks() -> Callable[[], float]:
    numbers = count()
    return lambda: float(next(numbers))


def finished(curriculum: Curriculum, directory: Path) -> list[TrainedTeam]:
    return list(train(curriculum, directory, clock=ticks()))


def files(directory: Path) -> dict[str, bytes]:
    """The parameters of all runs."""
    found = sorted(directory.rglob("*.safetensors"))
    return {str(file.relative_to(directory)): file.read_bytes() for file in found}


def run(number: int, score: float, parameters: dict[str, np.ndarray[Any, Any]]) -> TrainedTeam:
    points = (Point(0, 0.0, 9.0), Point(1, 1.0, score))
    return TrainedTeam(stage=0, number=number, parents=(), points=points, parameters=parameters)


@pytest.mark.thorough
def test_every_pair_of_the_best_runs_is_the_parents_of_a_run(tmp_path: Path) -> None:
    runs = finished(foraging(2, 4), tmp_path)
    assert [(own.stage, own.number) for own in runs] == [(s, n) for s in (0, 1) for n in (0, 1, 2)]
    first, second = (own.number for own in sorted(runs[:3], key=lambda own: own.score)[:0:-1])
    parents = [own.parents for own in runs]
    assert parents[:3] == [()] * 3
    assert parents[3:] == [(first, first), (first, second), (second, second)]
    assert len({own.score for own in runs}) > 1
    assert len({own.parameters["policy"].tobytes() for own in runs}) == 6
    assert [point.iteration for point in runs[0].points] == [0, 2, 3]


def test_selection_keeps_the_runs_whose_last_evaluation_is_best() -> None:
    runs = [run(number, score, {}) for number, score in enumerate([1.0, 5.0, -2.0, 5.0])]
    assert [own.number for own in best(runs, 3)] == [1, 3, 0]


@pytest.mark.parametrize(
    ("environment", "params", "sizes", "parents", "rows"),
    [
        ("food_collection", {}, (2, 4), "AABB", [0, 1, 0, 1]),
        ("grassland", {"distance": 100.0}, (4, 8), "AABBAABB", [0, 1, 0, 1, 2, 3, 2, 3]),
        ("ising", {}, (9, 25), "A" * 9 + "B" * 9 + "A" * 7, [j % 9 for j in range(25)]),
    ],
)
def test_a_larger_team_begins_with_sides_of_its_parents(
    environment: str,
    params: dict[str, Any],
    sizes: tuple[int, int],
    parents: str,
    rows: list[int],
) -> None:
    curriculum = Curriculum(environment=environment, params=params, stages=stages(*sizes))
    before, after = (curriculum.make(size, 1).agents for size in sizes)
    own = np.arange(3.0 * len(before), dtype=np.float32).reshape(-1, 3)
    pair = [run(0, 0.0, {"policy": own}), run(1, 0.0, {"policy": own + 100})]
    expected = own[rows] + 100 * (np.array([*parents]) == "B")[:, None]
    assert np.array_equal(mixed(pair, before, after)["policy"], expected)


def test_a_stage_begins_with_what_its_parents_learnt(tmp_path: Path) -> None:
    curriculum = foraging(2, 4, runs=1, selected=1)
    parent, child = finished(curriculum, tmp_path)
    team = curriculum.team(4)
    team.begin({name: np.tile(own, (2, 1)) for name, own in parent.parameters.items()})
    court, draw = curriculum.make(4, PRACTICE.episodes), derive(0, "learning_curve", 0)
    played = evaluate(court, Greedy(team), PRACTICE.episodes, draw)
    assert child.points[0].mean_return == played.returns.mean()


def test_runs_meet_the_same_episodes_in_an_evaluation_and_others_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[int] = []

    def noted(court: Environment, act: Act, episodes: int, seed: int) -> Evaluation:
        draws.append(seed)
        return evaluate(court, act, episodes, seed)

    monkeypatch.setattr(practice, "evaluate", noted)
    finished(foraging(2, runs=2), tmp_path)
    first, second = draws[:3], draws[3:]
    assert first == second
    assert len(set(first)) == 3


@pytest.mark.thorough
def test_a_curriculum_that_was_killed_ends_in_the_same_bytes(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    runs = finished(foraging(2, 4), whole)
    asked = 4 * ASKED + 3  # in the fifth run

    def clock() -> float:
        if next(numbers) == asked:
            raise Killed
        return 0.0

    numbers = count()
    with pytest.raises(Killed):
        list(train(foraging(2, 4), broken, clock=clock))
    before = files(broken)
    assert 0 < len(before) < len(files(whole))
    resumed = finished(foraging(2, 4), broken)
    assert files(broken) == files(whole)
    assert [own.score for own in resumed] == [own.score for own in runs]
    assert before.items() <= files(broken).items()


def test_a_finished_run_is_not_trained_again_and_a_damaged_one_is(tmp_path: Path) -> None:
    curriculum = foraging(2, runs=2)
    finished(curriculum, tmp_path)
    undamaged = files(tmp_path)
    name = next(file for file in undamaged if "run-1" in file)
    (tmp_path / name).write_bytes(b"damaged")
    asked = count()
    list(train(curriculum, tmp_path, clock=lambda: float(next(asked))))
    assert files(tmp_path) == undamaged
    assert next(asked) == ASKED  # run 1 alone was trained


def test_more_stages_go_on_from_those_that_there_are(tmp_path: Path) -> None:
    finished(foraging(2), tmp_path)
    known = files(tmp_path)
    runs = finished(foraging(2, 4), tmp_path)
    assert len(runs) == 6
    assert known.items() <= files(tmp_path).items()


def test_runs_of_another_curriculum_are_refused(tmp_path: Path) -> None:
    finished(foraging(2, runs=1, selected=1), tmp_path)
    with pytest.raises(CheckpointUnusable, match="a run of another curriculum"):
        finished(foraging(2, runs=1, selected=1, seed=1), tmp_path)


def test_from_scratch_is_one_run_of_the_last_stage() -> None:
    scratch = foraging(2, 4, 8, seed=7).scratch()
    assert scratch == replace(foraging(8, seed=7), runs=1, selected=1)


@pytest.mark.parametrize(
    ("environment", "params", "sizes", "rule"),
    [
        ("food_collection", {}, (3, 5), r"sides of \[5\] agents follow sides of \[3\]; .* double"),
        ("food_collection", {}, (6, 3), "double"),
        ("grassland", {"adversaries": 2}, (4, 8), r"\[2, 6\] agents follow sides of \[2, 2\]"),
        ("ising", {}, (16, 9), "9 agents follows one of 16; on a lattice .* 9, 16, 25, 64"),
        ("ising", {}, (9, 18), "M must be a square"),
        ("food_collection", {}, (), "needs a stage"),
    ],
)
def test_a_curriculum_that_does_not_grow_is_refused(
    environment: str, params: dict[str, Any], sizes: tuple[int, ...], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        Curriculum(environment=environment, params=params, stages=stages(*sizes))


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="of 2 runs 3 cannot be selected"):
        foraging(2, runs=2, selected=3)
    with pytest.raises(ConfigError, match=r"practice\.episodes must be at least 1: 0"):
        Practice(episodes=0)
    with pytest.raises(ConfigError, match="an iteration"):
        Curriculum(environment="ising", stages=(Stage(agents=9, iterations=0),))
