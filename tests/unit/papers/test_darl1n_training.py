"""Tables I to IV and Fig. 2 of [DARL1N]: frozen adversaries, curves, timing, and claims."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.common.types import JSON
from fullrank.local import LocalRun
from fullrank.wiring.training import training_of
from fullrank_darl1n import crossplay, scaling, trials
from fullrank_darl1n.crossplay import PLAYED
from fullrank_darl1n.published import GRASSLAND, SCALES, TASKS
from fullrank_darl1n.runs import LearningCurve, adversaries, fixed_return, learners
from fullrank_darl1n.scaling import judge_scaling
from fullrank_darl1n.trials import (
    Trial,
    adversaries_in,
    digest_of,
    policies_again,
    policies_of,
    seat,
)
from fullrank_papers.cells import Results
from fullrank_papers.claims import Held

WHOLE = SCALES["paper"]
TINY = dataclasses.replace(SCALES["smoke"], iterations=2, every=1, batch=16)


def trial(**changes: object) -> Trial:
    made = Trial(task=GRASSLAND, size=GRASSLAND.sizes[0], method="darl1n", scale=TINY)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def sides() -> Results:
    before = trial().adversaries
    assert before is not None
    return {before.name: before.cell({}).compute()}


def without_seconds(result: JSON) -> JSON:
    return {key: value for key, value in result.items() if key != "seconds"}


def test_a_curve_begins_untrained_and_is_a_function_of_its_settings(sides: Results) -> None:
    cell = trial().cell(sides)
    first, second = cell.compute(), cell.compute()
    assert first["iterations"] == [0, 1, 2]
    assert without_seconds(first) == without_seconds(second)
    assert first["seconds"][0] == 0.0
    assert np.all(np.diff(first["seconds"]) > 0)


def test_adversaries_play_what_they_learnt_before_and_learn_no_more(sides: Results) -> None:
    before = trial().adversaries
    assert before is not None
    every = policies_again(before, sides[before.name]["policies"])
    learnt = adversaries_in(every)
    assert list(learnt) == [0, 1, 2]
    assert digest_of(learnt.values()) == sides[before.name]["adversaries"]
    trials._POLICIES.clear()
    assert policies_again(before, digest_of(every)) == every  # trained again
    with pytest.raises(ConfigError, match="other bits than those of its cell"):
        policies_again(before, "another digest")
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


def test_names_of_runs_are_unique_and_contests_have_adversaries() -> None:
    trained = [each for task in TASKS for each in learners(WHOLE, task)]
    names = [each.name for each in (*trained, *adversaries(trained))]
    assert len(names) == len(set(names)) == 16 * 4 * 3 + 8 * 3
    assert len(WHOLE.teams()) == 16


def curve(returns: list[float], *, every: int = 30) -> LearningCurve:
    iterations = every * np.arange(len(returns), dtype=float)
    return LearningCurve(iterations=iterations, seconds=2.0 * iterations, returns=np.array(returns))


def test_a_run_has_settled_when_ninety_iterations_vary_by_little() -> None:
    assert curve([0.0, 50.0, 100.0, 101.0, 100.0]).settled() == 4
    assert curve([100.0, 100.0, 100.0]).settled() is None  # there are no ninety iterations yet
    assert curve([0.0, 50.0, 100.0, 150.0]).settled() is None
    assert curve([100.0, 0.0, 0.0, 0.0]).settled() == 3  # a constantly low return has settled


def test_the_fixed_return_lies_nine_tenths_up_from_the_lowest_beginning_to_the_best_end() -> None:
    level = fixed_return([curve([0.0, 0.0, 100.0, 100.0, 100.0]), curve([20.0, 30.0, 30.0, 30.0])])
    assert level == pytest.approx(0.9 * 100.0)
    assert curve([0.0, 99.0, 80.0, 96.0, 98.0]).reached(level) == 3
    assert curve([0.0, 99.0, 0.0, 99.0]).reached(level) is None
    assert curve([99.0, 99.0]).reached(level) is None


def games(good: Mapping[str, float], adversary: Mapping[str, float]) -> Results:
    """Returns of a side that depend only on the method that trained it."""
    return {
        crossplay.CELL: {
            "good": {own: {other: [good[own]] for other in PLAYED} for own in PLAYED},
            "adversary": {own: {other: [adversary[other]] for other in PLAYED} for own in PLAYED},
        }
    }


BEST = {"maddpg": -40.0, "mfac": -35.0, "darl1n": -20.0}


def test_sides_are_normalised_and_belong_to_who_trained_them() -> None:
    found = games(BEST, {**BEST, "darl1n": -50.0})
    good, adversary = (crossplay.normalised(found, side) for side in crossplay.SIDES)
    assert [good[method].mean() for method in PLAYED] == [0.0, 0.25, 1.0]
    assert [adversary[method].mean() for method in PLAYED] == [2 / 3, 1.0, 0.0]
    worst, epc = crossplay.judge_crossplay(found, WHOLE)
    assert "adversary of maddpg: 0.67, of darl1n 0.00 (+ 1)" in worst.reason
    assert worst.held is epc.held is Held.UNDECIDED  # one seed


def times_like(exponents: dict[str, float]) -> JSON:
    """Times of teams of 6, 12 and 48 in three rounds, equal for all methods at 12."""
    return {
        method: [[9.0] * 3, [1.0, 1.1, 1.2], [each * 4.0**power for each in (1.0, 1.1, 1.2)]]
        for method, power in exponents.items()
    }


LINEAR = {"maddpg": 2.0, "mfac": 1.8, "darl1n": 1.0, scaling.APART: 0.3}


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        (0, {scaling.APART: 1.3}),
        (1, {"mfac": 0.2}),
        (2, {"darl1n": 1.3}),
        (3, {"maddpg": 0.2}),
        (4, {"maddpg": 0.9}),
    ],
)
def test_claims_on_growth_are_judged_by_the_larger_teams(
    claim: int, changed: dict[str, float]
) -> None:
    teams = (6, 12, 48)
    good, bad = (judge_scaling(teams, times_like(each)) for each in (LINEAR, LINEAR | changed))
    assert {each.held for each in good} == {Held.HELD}
    assert bad[claim].held is Held.NOT_HELD


def test_growth_that_is_linear_in_some_rounds_alone_is_undecided() -> None:
    last = [4.0**0.8, 4.0**1.05, 4.0**1.3]
    unsteady = times_like(LINEAR) | {scaling.APART: [[9.0] * 3, [1.0] * 3, last]}
    linear, *_ = judge_scaling((6, 12, 48), unsteady)
    assert linear.held is Held.UNDECIDED
    assert linear.reason.startswith("1.05 [0.429, 1.67]; exponent of M from 12 to 48 agents")


def test_learners_apart_take_as_long_as_the_slowest_and_the_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = iter([0.0, 1.0, 10.0, 13.0, 20.0, 22.0, 30.0, 30.5])  # three units, then Adam
    run = LocalRun(scaling.config("darl1n", 3, 1), coded=False)
    monkeypatch.setattr(scaling, "process_time", lambda: next(seconds))
    assert scaling._apart(run, 0) == 3.5
