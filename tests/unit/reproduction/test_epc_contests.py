"""EPC in the contests of [DARL1N]: against frozen adversaries, and side against side."""

import dataclasses
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from fullrank.common.seeding import derive
from fullrank.common.types import JSON, BoolArray, FloatArray
from fullrank.environments import Environment, make_environment
from fullrank.training.evaluation import Act, Greedy
from fullrank_reproduction.baselines.epc.population import best, train
from fullrank_reproduction.cells import run
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import crossplay, epc_contests, epc_runs
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.policies import policies_of, side_of
from fullrank_reproduction.darl1n.training.published import (
    BATTLE,
    EPC,
    EPISODES,
    GRASSLAND,
    Darl1nTask,
)
from fullrank_reproduction.darl1n.training.trials import Trial

TINY = Darl1nBudget(
    sizes=1, iterations=2, every=1, batch=16, seeds=1, timed=1, draws=1, episodes=80
)
TWO = dataclasses.replace(TINY, sizes=2)


def adversaries_found(budget: Darl1nBudget, task: Darl1nTask) -> dict[str, JSON]:
    """Untrained policies of both sides, as results of the adversaries' trials."""
    found = {}
    for size in task.sizes[: budget.sizes]:
        for seed in range(budget.seeds):
            trial = Trial(task=task, size=size, method=EPC, budget=budget, seed=seed)
            before = trial.adversaries
            assert before is not None
            world = make_environment(task.name, agents=size.agents, copies=1, **trial.world())
            untrained = side_of(world.agents, [], seed=seed)
            policies = policies_of(untrained, range(size.agents))
            found[before.name] = {"policies": policies}
    return found


def together(adversaries: Act, good: Act) -> Act:
    """Joint actions of both sides of a contest."""

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        first, second = np.split(observation, 2, axis=1)
        return np.concatenate([adversaries(first), good(second)], axis=1)

    return act


@pytest.mark.parametrize(
    "task",
    [pytest.param(GRASSLAND, marks=pytest.mark.thorough), BATTLE],
    ids=lambda task: task.name,
)
def test_a_team_is_judged_in_the_episodes_and_by_the_adversaries_that_others_meet(
    task: Darl1nTask, tmp_path: Path
) -> None:
    found = adversaries_found(TINY, task)
    curriculum = epc_contests.contest(TINY, found, task)
    (trained,) = train(curriculum, tmp_path, clock=time.process_time)
    team = curriculum.team(6)
    team.begin(trained.parameters)
    other = Trial(task=task, size=task.sizes[0], method="maddpg", budget=TINY)
    specs = make_environment(task.name, agents=6, copies=1, **other.evaluated()).agents
    frozen = side_of(specs[:3], list(other.met(found).values()), seed=0)
    act = together(Greedy(frozen.actor), Greedy(team))
    played = other.play(act, seed=derive(0, "learning_curve", 2))
    assert trained.points[-1].mean_return == played.side_returns["good"].mean()


def test_a_run_meets_the_adversaries_of_the_seed_of_its_number() -> None:
    budget = dataclasses.replace(TINY, seeds=2)
    curriculum = epc_contests.contest(budget, adversaries_found(budget, BATTLE), BATTLE)

    def after_a_step(number: int) -> bytes:
        court = curriculum.court(6, run=number)
        court.reset(range(EPISODES), range(EPISODES))
        return court.step(np.zeros((EPISODES, 15), np.float32)).observation.tobytes()

    first, second, third = map(after_a_step, range(3))
    assert first != second
    assert first == third


def test_adversaries_explore_where_teams_learn_and_not_where_they_are_judged() -> None:
    curriculum = epc_contests.contest(TINY, adversaries_found(TINY, BATTLE), BATTLE)
    copies = curriculum.practice.copies

    def thrusts(make: Callable[..., Environment], copies: int) -> int:
        """Number of distinct accelerations when all copies begin alike."""
        world = make(6, run=0)
        world.reset([0] * copies, range(copies))
        seen = world.step(np.zeros((copies, 15), np.float32)).observation
        return len(np.unique(seen, axis=0))

    assert thrusts(curriculum.court, EPISODES) == 1
    assert thrusts(curriculum.world, copies) == copies


def test_other_adversaries_make_another_curriculum_and_those_of_later_stages_do_not() -> None:
    found = adversaries_found(TWO, BATTLE)
    second = BATTLE.sizes[1]
    changed = {
        name: {"policies": result["policies"][::-1]} if f"-{second.agents}-" in name else result
        for name, result in found.items()
    }
    cells, others = (
        epc_contests.cells(TWO, BATTLE, each, Path(), time.process_time)
        for each in (found, changed)
    )
    assert cells[0].settings == others[0].settings
    assert cells[1].settings != others[1].settings


@pytest.mark.thorough  # a curriculum that was killed shows most of it
def test_a_contest_that_was_killed_goes_on_to_the_same_returns(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def killing() -> float:
        if next(asked) == 12:  # in the second team
            raise Killed
        return 0.0

    found = adversaries_found(TWO, BATTLE)
    whole = results(found, tmp_path / "whole", lambda: 0.0)
    asked = count()
    with pytest.raises(Killed):
        results(found, tmp_path / "broken", killing)
    assert list((tmp_path / "broken").rglob("*.safetensors"))
    assert results(found, tmp_path / "broken", lambda: 0.0) == whole


def results(found: Results, directory: Path, clock: Callable[[], float]) -> list[JSON]:
    """Runs of all teams in the battle."""
    cells = epc_contests.cells(TWO, BATTLE, found, directory, clock)
    return [cell.compute() for cell in cells]


def test_teams_play_as_long_as_the_paper_s_of_their_size() -> None:
    curriculum = epc_contests.contest(TWO, adversaries_found(TWO, BATTLE), BATTLE)
    for size in BATTLE.sizes[:2]:
        world = curriculum.court(size.agents, run=0)
        world.reset(range(EPISODES), range(EPISODES))
        idle = np.zeros((EPISODES, 5 * size.agents // 2), np.float32)
        steps = 1
        while not world.step(idle).ended.any():
            steps += 1
        assert steps == size.horizon + 1


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, JSON], Path]:
    """Both sides of all methods."""
    directory = tmp_path_factory.mktemp("sides")
    trials = crossplay.trials(TINY)
    grown = epc_contests.sides(trials.pop(EPC), directory, time.process_time)
    cells = [grown, *(trial.cell({}, time.process_time) for trial in trials.values())]
    return run(cells, directory), directory


@pytest.mark.thorough
def test_every_good_side_meets_every_adversary_side(
    learnt: tuple[dict[str, JSON], Path],
) -> None:
    (cell,) = crossplay.cells(learnt[0], TINY)
    played = cell.compute()
    for side in crossplay.SIDES:
        assert {len(each) for row in played[side].values() for each in row.values()} == {EPISODES}
        games = [tuple(each) for row in played[side].values() for each in row.values()]
        assert len(set(games)) == len(games) == 4 * 4
    assert cell.compute() == played


@pytest.mark.thorough
def test_in_cross_play_a_team_plays_as_it_learnt_to(learnt: tuple[dict[str, JSON], Path]) -> None:
    found, directory = learnt
    trial = crossplay.trials(TINY)[EPC]
    curriculum = epc_runs.curriculum(TINY, BATTLE, BATTLE.sizes[:1], both=True)
    place = epc_runs.place(curriculum, directory)
    (chosen,) = best(list(train(curriculum, place, clock=time.process_time)), 1)
    team = curriculum.team(6)
    team.begin(chosen.parameters)
    expected = trial.play(Greedy(team), seed=1000).side_returns
    (cell,) = crossplay.cells(found, TINY)
    played = cell.compute()
    for side in crossplay.SIDES:
        assert played[side][EPC][EPC] == expected[side].tolist()
