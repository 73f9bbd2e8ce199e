from typing import Any

import numpy as np
import pytest
from tests.unit.planning.worlds import late, planned, regime

from fullrank.common.types import Matrix, Times, Vector
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.planning.candidates import Forecast, candidates
from fullrank.planning.costs import Traffic
from fullrank.planning.observation import Observation
from fullrank.planning.planner import Planner, iterations_since_pace_change, rounds_since_change
from fullrank.planning.tuning import TUNING

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))]
NOBODY = regime(stragglers={"name": "none"})


def free(matrix: Matrix) -> Traffic:
    nothing = np.zeros(len(matrix), dtype=np.int64)
    return Traffic(parameters=nothing, sample=nothing, digests=nothing, coded=nothing)


def test_with_nobody_late_the_least_load_stays() -> None:
    run = planned(NOBODY)
    assert not run.changes
    assert run.last.candidate.label == "cyclic,tolerance=1"


def test_long_delays_of_many_raise_the_tolerance() -> None:
    run = planned(late(7))
    first, _ = run.changes[0]
    assert first <= 2 * TUNING.interval
    assert run.last.candidate.params["tolerance"] >= 5
    assert np.median(run.round_s[20:]) < 0.6


EQUAL = {"learners": 8, "agents": 8}
RARELY = {"name": "bernoulli", "probability": 0.05, "delay_s": 1.0}


@pytest.mark.parametrize("stragglers", [{"name": "none"}, RARELY])
def test_a_run_that_hedges_needs_no_code_with_a_machine_for_each_unit(stragglers: Any) -> None:
    run = planned(regime(**EQUAL, stragglers=stragglers), iterations=40, undecodable="hedge")
    assert [plan.candidate.label for _, plan in run.changes] == ["uncoded"]
    assert "uncoded,hedged (" in run.changes[0][1].reason
    assert run.round_s[20:].mean() < 0.15


@pytest.mark.parametrize(
    ("undecodable", "least"), [("wait", 1), ("fail", 1), ("recode", 0), ("hedge", 0)]
)
def test_a_loss_is_survived_by_the_code_where_no_rows_are_added(
    undecodable: str, least: int
) -> None:
    run = planned(regime(**EQUAL), iterations=20, undecodable=undecodable)
    assert run.last.candidate.code.tolerance == least


def chosen_of(cautious: list[int]) -> str:
    """Label of the choice among candidates with these forecasts, the last of which is in use."""
    options = candidates(learners=6, units=3, seed=0, tolerance=0)[: len(cautious)]
    forecasts = [
        Forecast.of(option.label, np.array([ticks]), evidence=1.0)
        for option, ticks in zip(options, cautious, strict=True)
    ]
    planner = Planner(AutoCodeSettings(), units=3, seed=0, moved=free)
    return planner._choose(options, forecasts, options[-1]).candidate.label


def test_of_forecasts_within_a_hundredth_the_first_is_chosen_which_has_the_least_load() -> None:
    assert chosen_of([1010, 1000, 1000, 2000]) == "uncoded"
    assert chosen_of([1011, 1000, 1000, 2000]) == "cyclic,tolerance=1"


def test_a_change_is_followed_within_fifty_iterations() -> None:
    run = planned(NOBODY, late(7), iterations=160)
    assert run.last.candidate.params["tolerance"] >= 5
    assert run.round_s[130:].mean() < 0.6


@pytest.mark.integration
@pytest.mark.parametrize("seed", SEEDS)
def test_changes_are_rationed(seed: int) -> None:
    nervous = [late(7), NOBODY, late(3), NOBODY, late(7), NOBODY]
    run = planned(*nervous, iterations=180, seed=seed)
    assert len(run.changes) <= TUNING.changes + 180 / TUNING.refill


def test_the_plan_names_the_times_it_compared() -> None:
    run = planned(late(7), iterations=20)
    _, plan = run.changes[0]
    assert plan.reason.startswith(plan.candidate.label)
    assert "instead of cyclic,tolerance=1" in plan.reason
    assert [each.cautious for each in plan.forecasts] == sorted(
        each.cautious for each in plan.forecasts
    )
    assert len(plan.forecasts) == len(candidates(learners=15, units=8, seed=0, tolerance=0))


def observe(planner: Planner, *, stopped: set[int], iterations: int) -> None:
    """Learners 0 to 5 hold cyclic(1) of three units; stopped ones send nothing."""
    code = candidates(learners=6, units=3, seed=0)[0].code
    for _ in range(iterations):
        here = np.array([learner not in stopped for learner in range(6)])
        planner.observe(
            Observation(
                code="cyclic,tolerance=1",
                learners=tuple(range(6)),
                load=code.load,
                compute_s=np.where(here, 0.1 * code.load, np.nan),
                arrival_s=np.where(here, 0.1 * code.load, np.nan),
                round_s=0.1 * int(code.load[here].max()),
                moved=free(code.matrix),
            )
        )


def test_stopped_learners_are_planned_around() -> None:
    planner = Planner(AutoCodeSettings(), units=3, seed=0, moved=free)
    observe(planner, stopped=set(), iterations=20)
    assert planner.plan(range(6)).candidate.params["tolerance"] == 1
    observe(planner, stopped={0, 1}, iterations=40)
    plan = planner.plan(range(6))
    assert np.linalg.matrix_rank(plan.candidate.code.matrix[2:]) == 3


def test_a_choice_that_the_run_does_not_follow_is_no_change() -> None:
    """The code in use stays that of the rounds, and later choices need save no more."""
    planner = Planner(AutoCodeSettings(), units=3, seed=0, moved=free)
    observe(planner, stopped=set(), iterations=20)
    observe(planner, stopped={0, 1}, iterations=35)
    for _ in range(TUNING.changes + 1):
        observe(planner, stopped={0, 1}, iterations=TUNING.interval)
        assert "instead of cyclic,tolerance=1" in planner.plan(range(6)).reason


def test_rounds_in_which_no_holder_returned_are_planned_from_too() -> None:
    """Idle learners had computed every unit of the newest code before."""
    planner = Planner(AutoCodeSettings(), units=3, seed=0, moved=free, undecodable="hedge")
    observe(planner, stopped=set(), iterations=20)
    for _ in range(20):
        planner.observe(
            Observation(
                code="uncoded",
                learners=(0, 1, 2),
                load=np.ones(3, np.int64),
                compute_s=np.full(3, np.nan),
                arrival_s=np.full(3, np.nan),
                round_s=0.1,
                moved=free(np.eye(3)),
            )
        )
    plan = planner.plan(range(6))
    assert 0.1 <= plan.forecasts[0].mean_s < 0.3


def test_nothing_is_chosen_before_enough_was_seen() -> None:
    planner = Planner(AutoCodeSettings(), units=3, seed=0, moved=free)
    observe(planner, stopped=set(), iterations=3)
    plan = planner.plan(range(6))
    assert (plan.candidate.label, plan.changed, plan.forecasts) == ("cyclic,tolerance=1", False, ())
    assert plan.reason == "3 of the first 10 iterations were seen"


def uniform(rounds: int, *, seed: int) -> Vector:
    return np.random.default_rng(seed).random(rounds)


def since(ranks: Vector, *, seconds: float = 2.0) -> int:
    """Rounds since a change, for these ranks and rounds of ``seconds``; the forecast is 1 s."""
    return rounds_since_change([(float(rank), seconds) for rank in ranks], 1.0)


def test_rounds_as_forecast_hardly_ever_contradict() -> None:
    alarms = [since(uniform(TUNING.tested_rounds, seed=seed)) > 0 for seed in range(500)]
    assert sum(alarms) <= 2


@pytest.mark.parametrize(("rank", "enough"), [(0.0, 7), (1.0, 3)])
def test_few_rounds_beyond_the_forecast_are_enough(rank: float, enough: int) -> None:
    before = np.linspace(0.3, 0.7, 20)
    assert since(np.append(before, [rank] * (enough - 1))) == 0
    assert since(np.append(before, [rank] * enough)) == enough


def test_the_rounds_before_the_change_are_told_from_those_after() -> None:
    found = [
        since(np.append(uniform(30, seed=seed), 0.9 + 0.1 * uniform(10, seed=100 + seed)))
        for seed in range(50)
    ]
    assert np.median(found) == pytest.approx(10, abs=2)


LEARNERS = 15


def paces(iterations: int, *, seed: int) -> Times:
    """Learners have different, scattered paces; a third of the returns is cut off."""
    draws = np.random.default_rng(seed)
    pace = draws.lognormal(0.0, 0.5, LEARNERS) * draws.lognormal(0.0, 0.3, (iterations, LEARNERS))
    pace[draws.random(pace.shape) < 1 / 3] = np.nan
    return pace


def test_paces_that_only_scatter_hardly_ever_count_as_changed() -> None:
    alarms = [iterations_since_pace_change(paces(100, seed=seed)) > 0 for seed in range(200)]
    assert sum(alarms) <= 1


@pytest.mark.parametrize(("learners", "iterations"), [(LEARNERS, 4), (5, 10)])
def test_learners_of_half_the_pace_are_noticed_and_since_when(
    learners: int, iterations: int
) -> None:
    found = []
    for seed in range(50):
        pace = paces(100, seed=seed)
        pace[-iterations:, :learners] *= 2.0
        found.append(iterations_since_pace_change(pace))
    assert np.median(found) == pytest.approx(iterations, abs=1)
    assert min(found) > 0
