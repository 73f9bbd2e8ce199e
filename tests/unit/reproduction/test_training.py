"""Tables I to IV of [DARL1N]: frozen adversaries, curves, and results of claims."""

import dataclasses
import itertools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from fullrank.common.seeding import derive
from fullrank.common.types import JSON
from fullrank.training.evaluation import Greedy
from fullrank.wiring import training_of
from fullrank_reproduction.baselines.epc.population import train
from fullrank_reproduction.cells import Cell, CellOrigin, run
from fullrank_reproduction.claim_results import Held
from fullrank_reproduction.darl1n.results import Results
from fullrank_reproduction.darl1n.training import (
    crossplay,
    epc_runs,
    wireless,
)
from fullrank_reproduction.darl1n.training.budget import Darl1nBudget
from fullrank_reproduction.darl1n.training.convergence import (
    LearningCurve,
    fixed_return,
    mean_curve,
)
from fullrank_reproduction.darl1n.training.crossplay import PLAYED
from fullrank_reproduction.darl1n.training.policies import policies_of, seat
from fullrank_reproduction.darl1n.training.published import FOOD, GRASSLAND, ISING, TASKS
from fullrank_reproduction.darl1n.training.runs import adversaries, learners, teams
from fullrank_reproduction.darl1n.training.trials import Trial, adversaries_in

TINY = Darl1nBudget(
    sizes=1, iterations=2, every=1, batch=16, seeds=1, timed=1, draws=1, episodes=80
)
WHOLE = Darl1nBudget(
    sizes=4, iterations=3_000, every=30, batch=1_024, seeds=3, timed=3, draws=5, episodes=2_000
)


def trial(**changes: object) -> Trial:
    made = Trial(task=GRASSLAND, size=GRASSLAND.sizes[0], method="darl1n", budget=TINY)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sides() -> Results:
    before = trial().adversaries
    assert before is not None
    return {before.name: before.cell({}, time.process_time).compute()}


def without_seconds(result: JSON) -> JSON:
    return {key: value for key, value in result.items() if key != "seconds"}


def test_a_curve_begins_untrained_and_is_a_function_of_its_settings(sides: Results) -> None:
    cell = trial().cell(sides, time.process_time)
    first, second = cell.compute(), cell.compute()
    assert first["iterations"] == [0, 1, 2]
    assert without_seconds(first) == without_seconds(second)
    assert first["seconds"][0] == 0.0
    assert np.all(np.diff(first["seconds"]) > 0)


def test_adversaries_play_what_they_learnt_before_and_learn_no_more(sides: Results) -> None:
    before = trial().adversaries
    assert before is not None
    learnt = adversaries_in(sides[before.name])
    assert list(learnt) == [0, 1, 2]
    algorithm = training_of(trial().config()).algorithm
    own = policies_of(algorithm, range(6))
    seat(algorithm, learnt)
    assert policies_of(algorithm, range(6)) == [*learnt.values(), *own[3:]]
    targets = {
        each.agents[0]: each.id
        for each in algorithm.problem.sections
        if each.role == "target_policy"
    }
    online = {
        each.agents[0]: each.id for each in algorithm.problem.sections if each.role == "policy"
    }
    for unit in learnt:
        assert np.array_equal(
            algorithm.parameters.view(targets[unit]), algorithm.parameters.view(online[unit])
        )


def test_other_adversaries_make_another_run(sides: Results, tmp_path: Path) -> None:
    (name,) = sides
    other = {name: {**sides[name], "policies": sides[name]["policies"][::-1]}}
    cells = [trial().cell(found, time.process_time) for found in (sides, other)]
    origins: list[CellOrigin] = []
    for cell in cells:
        quick = Cell(name=cell.name, settings=cell.settings, compute=dict)
        run([quick], tmp_path, done=lambda _, origin: origins.append(origin))
    assert origins == [CellOrigin.COMPUTED, CellOrigin.CHANGED]


def test_each_method_sees_as_far_as_in_the_paper_and_all_are_evaluated_alike() -> None:
    near, far = (trial(method=method) for method in ("darl1n", "mfac"))
    assert "distance" not in near.world()
    assert far.world()["distance"] > 10.0
    for each in (near, far):
        assert each.evaluated()["extra_step"]
        assert not each.evaluated()["moving_start"]


def test_adversaries_learn_from_other_draws_than_those_whom_they_meet() -> None:
    before = trial(method="maddpg").adversaries
    assert before is not None
    assert before.config().seed != trial(method="maddpg").config().seed


def test_names_of_runs_are_unique_and_contests_have_adversaries() -> None:
    trained = [each for task in TASKS for each in learners(WHOLE, task)]
    names = [each.name for each in (*trained, *adversaries(trained))]
    assert len(names) == len(set(names)) == 16 * 3 * 3 + 8 * 3
    assert len(teams(WHOLE)) == 16


def curve(returns: list[float], *, every: int = 30) -> LearningCurve:
    iterations = every * np.arange(len(returns), dtype=float)
    return LearningCurve(iterations=iterations, seconds=2.0 * iterations, returns=np.array(returns))


def test_a_run_has_settled_when_ninety_iterations_vary_by_little() -> None:
    assert curve([0.0, 50.0, 100.0, 101.0, 100.0]).settled() == 4
    assert curve([100.0, 100.0, 100.0]).settled() is None  # there are no ninety iterations yet
    assert curve([0.0, 50.0, 100.0, 150.0]).settled() is None
    assert curve([100.0, 0.0, 0.0, 0.0]).settled() == 3  # a constantly low return has settled


def test_the_criterion_depends_on_the_unit_of_rewards() -> None:
    shape = np.array([10.0, 10.3, 9.8, 10.2, 9.9])
    assert curve(list(shape)).settled() is not None
    assert curve(list(100.0 * shape)).settled() is None


def test_the_fixed_return_lies_nine_tenths_up_from_the_lowest_beginning_to_the_best_end() -> None:
    level = fixed_return([curve([0.0, 0.0, 100.0, 100.0, 100.0]), curve([20.0, 30.0, 30.0, 30.0])])
    assert level == pytest.approx(0.9 * 100.0)
    assert curve([0.0, 99.0, 80.0, 96.0, 98.0]).reached(level) == 3
    assert curve([0.0, 99.0, 0.0, 99.0]).reached(level) is None
    assert curve([99.0, 99.0]).reached(level) is None
    assert math.isinf(curve([0.0]).second(None))


def draws_with(leads: Sequence[float]) -> Results:
    """Returns of SAC and DARL1N on each draw, alike for both z except for the sign."""
    found: dict[str, JSON] = {}
    for deadline, sign in zip(wireless.DEADLINES, (-1.0, 1.0), strict=True):
        for draw, gain in enumerate(leads):
            name = f"wireless-z{deadline}-{{}}-draw{draw}"
            found[name.format("sac")] = {"return": 10.0 * draw, "random": 1.0, "seconds": 2.0}
            found[name.format("darl1n")] = {"return": 10.0 * draw + sign * gain, "seconds": 3.0}
    return found


def test_methods_are_compared_on_the_same_draws() -> None:
    clear = wireless.judge_wireless(draws_with([1.0, 2.0, 1.0, 2.0, 1.0]), WHOLE)
    doubtful = wireless.judge_wireless(draws_with([1.0, -2.0, 1.0, 2.0, -1.0]), WHOLE)
    few = wireless.judge_wireless(draws_with([1.0]), dataclasses.replace(WHOLE, draws=1))
    assert [each.held for each in clear] == [Held.HELD] * 2
    assert [each.held for each in doubtful] == [Held.NOT_HELD] * 2
    assert [each.held for each in few] == [Held.NOT_TESTABLE] * 2


@pytest.mark.thorough
def test_both_methods_learn_in_the_same_wireless_world() -> None:
    sac, own = wireless.cells(TINY, time.process_time)[:2]
    assert sac.settings["world"].items() <= own.settings["run"]["environment"].items()
    results = [each.compute() for each in (sac, own)]
    assert all(each["return"] >= 0.0 and each["seconds"] > 0.0 for each in results)
    assert [each["episodes"] for each in results] == [[20.0, 60.0], [0, 40]]
    assert all(len(each["returns"]) == 2 for each in results)


def test_both_methods_learn_from_equally_many_transitions() -> None:
    sac, own = wireless.cells(WHOLE, time.process_time)[:2]
    run = own.settings["run"]
    sampled = run["iterations"] * run["algorithm"]["batch_size"] * run["environment"]["agents"]
    assert sampled == sac.settings["episodes"] * wireless.USERS * 25


def games(good: Mapping[str, float], adversary: Mapping[str, float]) -> Results:
    """Returns of a side that depend only on the method that trained it."""
    return {
        crossplay.CELL: {
            "good": {own: {other: [good[own]] for other in PLAYED} for own in PLAYED},
            "adversary": {own: {other: [adversary[other]] for other in PLAYED} for own in PLAYED},
        }
    }


BEST = {"maddpg": -40.0, "mfac": -35.0, "epc": -30.0, "darl1n": -20.0}


def test_sides_are_normalised_and_belong_to_who_trained_them() -> None:
    found = games(BEST, {**BEST, "darl1n": -50.0, "epc": -40.0})
    good, adversary = (crossplay.normalised(found, side) for side in crossplay.SIDES)
    assert [good[method].mean() for method in PLAYED] == [0.0, 0.25, 0.5, 1.0]
    assert [adversary[method].mean() for method in PLAYED] == [2 / 3, 1.0, 2 / 3, 0.0]
    verdicts = crossplay.judge_crossplay(found, WHOLE)
    assert [each.held for each in verdicts] == [Held.NOT_HELD] * 2
    assert verdicts[0].reason.startswith("adversary of maddpg")
    assert verdicts[1].reason.startswith("adversary of maddpg: 0.67, of epc 0.67; adversary of m")
    best, short = (crossplay.judge_crossplay(games(BEST, BEST), each) for each in (WHOLE, TINY))
    assert [each.held for each in best] == [Held.HELD] * 2
    assert [each.held for each in short] == [Held.NOT_TESTABLE] * 2
    small = crossplay.judge_crossplay(games(BEST, BEST), dataclasses.replace(WHOLE, sizes=1))
    assert [each.held for each in small] == [Held.UNDECIDED] * 2


TWO = dataclasses.replace(TINY, sizes=2)


def test_teams_grow_in_all_tasks_and_begin_from_scratch_in_ising() -> None:
    alone = {
        cell.name
        for task in (ISING, FOOD)
        for cell in epc_runs.cells(WHOLE, task, Path(), time.process_time)
    }
    sought = {name for team in teams(WHOLE) for name in epc_runs.names(*team).values()}
    assert alone == {name for name in sought if "grassland" not in name and "battle" not in name}
    assert len(alone) == 4 + 3 + 4
    assert len(sought) == len(alone) + 4 + 4


def test_a_stage_goes_on_from_the_runs_of_the_one_before(tmp_path: Path) -> None:
    asked = itertools.count()
    first, second, *_ = epc_runs.cells(TWO, ISING, tmp_path, lambda: float(next(asked)))
    small = first.compute()
    spent = next(asked)
    grown = second.compute()
    assert next(asked) == 2 * spent + 1  # as often again, plus this test's own question
    assert small["before"] == 0.0
    assert grown["before"] == small["runs"][0]["seconds"][-1]
    assert [run["iterations"] for run in grown["runs"]] == [[0, 1, 2]]


@pytest.mark.thorough
def test_teams_of_another_effort_are_none_to_go_on_from(tmp_path: Path) -> None:
    longer = dataclasses.replace(TINY, iterations=3)
    lengths = [
        epc_runs.cells(budget, ISING, tmp_path, time.process_time)[0].compute()["runs"][0][
            "iterations"
        ]
        for budget in (TINY, longer)
    ]
    assert lengths == [[0, 1, 2], [0, 1, 2, 3]]


def test_a_team_that_grows_meets_the_episodes_that_other_methods_meet(tmp_path: Path) -> None:
    (other,) = (each for each in learners(TINY, FOOD) if each.method == "maddpg")
    curriculum = epc_runs.curriculum(TINY, FOOD, FOOD.sizes[:1])
    (run,) = train(curriculum, tmp_path, clock=time.process_time)
    team = curriculum.team(other.size.agents)
    team.begin(run.parameters)
    last = other.play(Greedy(team), seed=derive(0, "learning_curve", 2))
    assert run.points[-1].mean_return == last.returns.mean()


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_team_that_grows_has_as_many_runs_as_there_are_seeds(seeds: int, tmp_path: Path) -> None:
    budget = dataclasses.replace(TWO, seeds=seeds)
    cells = epc_runs.cells(budget, FOOD, tmp_path, time.process_time)
    for size in FOOD.sizes[:2]:
        name = epc_runs.names(FOOD, size)["epc"]
        (cell,) = (each for each in cells if each.name == name)
        assert len(cell.compute()["runs"]) == seeds


def test_curves_of_seeds_are_averaged() -> None:
    runs = [{"iterations": [0, 1], "seconds": [0.0, s], "returns": [0.0, s]} for s in (1.0, 3.0)]
    mean = mean_curve(runs)
    assert (mean.seconds[-1], mean.returns[-1], mean.iteration_s) == (2.0, 2.0, 2.0)
