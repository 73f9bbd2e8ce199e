import numpy as np
import pytest
from tests.unit.planning.worlds import late, planned, regime

from fullrank.common.types import Matrix
from fullrank.config.auto_code import AutoCodeSettings
from fullrank.planning import TUNING, Observation, Planner, candidates
from fullrank.planning.costs import Traffic

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


def test_a_change_is_followed_within_fifty_iterations() -> None:
    run = planned(NOBODY, late(7), iterations=160)
    assert run.last.candidate.params["tolerance"] >= 5
    assert run.round_s[130:].mean() < 0.6


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
    assert [each.cautious_s for each in plan.forecasts] == sorted(
        each.cautious_s for each in plan.forecasts
    )
    assert len(plan.forecasts) == len(candidates(learners=15, units=8, seed=0))


def observe(planner: Planner, *, stopped: set[int], iterations: int) -> None:
    """Learners 0 to 5 hold cyclic(1) of three units; stopped ones send nothing."""
    code = candidates(learners=6, units=3, seed=0)[0].code
    for _ in range(iterations):
        here = np.array([learner not in stopped for learner in range(6)])
        planner.observe(
            Observation(
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


def test_nothing_is_chosen_before_enough_was_seen() -> None:
    planner = Planner(AutoCodeSettings(), units=3, seed=0, moved=free)
    observe(planner, stopped=set(), iterations=3)
    plan = planner.plan(range(6))
    assert (plan.candidate.label, plan.changed, plan.forecasts) == ("cyclic,tolerance=1", False, ())
    assert plan.reason == "3 of the first 10 iterations were seen"
