"""Intervals, groups of runs, and the tags under which their numbers are shown."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean
from tests.unit.runs.test_record import record

from fullrank.common.types import Interval
from fullrank.runs import statistics
from fullrank.runs.evaluations import EvaluationRecord
from fullrank.runs.scalars import intervals, scalars
from fullrank.runs.statistics import (
    RunResult,
    centre,
    difference,
    grouped,
    labels,
    mean_interval,
    student,
    wilson,
)


def result(value: float, *, seed: int = 0, **settings: str | int) -> RunResult:
    dotted = {key.replace("__", "."): setting for key, setting in settings.items()}
    return RunResult(settings=dotted, seed=seed, iterations=10, scores={"team": value})


def group(*values: float, **settings: str) -> list[RunResult]:
    return [result(value, seed=seed, **settings) for seed, value in enumerate(values)]


def test_runs_that_differ_in_their_seed_alone_are_one_group() -> None:
    cyclic, mds = group(1.0, 2.0, code__name="cyclic"), group(3.0, code__name="mds")
    assert grouped([*cyclic, *mds]) == [cyclic, mds]
    assert grouped([*mds, *cyclic[::-1]]) == [mds, cyclic[::-1]]


def test_a_group_is_called_by_what_sets_it_apart() -> None:
    cyclic = result(0.0, learners=4, code__name="cyclic", code__tolerance=1)
    mds = result(0.0, learners=4, code__name="mds")
    expected = ["code.name = cyclic, code.tolerance = 1", "code.name = mds"]
    assert labels([[cyclic], [mds]]) == expected
    assert labels([[mds]]) == [""]


def test_differences_are_taken_seed_by_seed() -> None:
    base = group(0.0, 100.0, 200.0, 300.0, 400.0)
    better = [result(each.scores["team"] + 1.0, seed=each.seed) for each in base[::-1]]
    assert difference(better, base, "team") == (1.0, 1.0, 1.0)
    assert difference(base, base, "team") == (0.0, 0.0, 0.0)


def test_only_common_seeds_of_one_task_have_a_difference() -> None:
    base = [result(1.0, seed=1), result(5.0, seed=2)]
    assert difference([result(4.0, seed=2), result(9.0, seed=3)], base, "team") == (
        -1.0, -math.inf, math.inf,
    )  # fmt: skip
    assert difference([result(4.0, seed=3)], base, "team") is None
    here = [result(1.0, environment__agents=3, environment__copies=4)]
    assert difference([result(1.0, environment__agents=4)], here, "team") is None
    assert difference([result(1.0, environment__agents=3)], here, "team") is not None


@given(st.lists(st.integers(-(2**20), 2**20), min_size=2, max_size=20))
def test_the_centre_is_the_interquartile_mean_and_lies_in_its_interval(
    values: list[int],
) -> None:
    interval = centre(group(*map(float, values)), "team")
    assert interval.mean == trim_mean(np.array(values, float), 0.25)
    assert interval.low <= interval.mean <= interval.high


@pytest.mark.parametrize("runs", range(2, 12))
def test_the_interval_over_any_number_of_runs_covers_the_true_mean_as_often_as_it_says(
    monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1_000)
    values = np.random.default_rng(0).normal(3.0, 2.0, size=(600, runs))
    intervals = [centre(group(*each), "team") for each in values.tolist()]
    covered = sum(each.low <= 3.0 <= each.high for each in intervals)
    assert 0.92 <= covered / len(intervals) <= 0.99


@pytest.mark.parametrize("episodes", [2, 5, 40])
def test_the_interval_of_a_mean_covers_the_true_one_as_often_as_it_says(
    episodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 1_000)
    values = np.random.default_rng(0).normal(3.0, 2.0, size=(600, episodes))
    covered = sum(each.low <= 3.0 <= each.high for each in map(mean_interval, values))
    assert 0.92 <= covered / 600 <= 0.99


def test_one_value_has_no_interval_and_is_shown_alone() -> None:
    alone = mean_interval(np.array([2.5]))
    assert alone == (2.5, -math.inf, math.inf)
    assert str(alone) == "2.5"
    assert alone.facts() == {"mean": 2.5, "low": None, "high": None}
    assert mean_interval(np.full(3, 2.0)) == (2.0, 2.0, 2.0)


def test_the_interval_of_five_values_covers_the_true_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    trials = 1_000
    intervals = [student(generator.normal(3.0, 2.0, size=5)) for _ in range(trials)]
    covered = sum(each.low <= 3.0 <= each.high for each in intervals)
    assert 0.93 <= covered / trials <= 0.97


def test_the_interval_of_a_few_values_is_that_of_the_tables() -> None:
    found = student(np.arange(1.0, 6.0), share=0.95)
    assert np.allclose(found, (3.0, 3.0 - 2.776 * 0.7071, 3.0 + 2.776 * 0.7071), atol=1e-3)
    assert student(np.full(5, 2.0)) == (2.0, 2.0, 2.0)


def test_the_interval_of_a_win_rate_is_sound_where_all_or_no_episodes_are_won() -> None:
    z2 = 1.959964**2
    np.testing.assert_allclose(wilson(np.ones(10, dtype=bool)), (1, 10 / (10 + z2), 1), atol=1e-6)
    np.testing.assert_allclose(wilson(np.zeros(10, dtype=bool)), (0, 0, z2 / (10 + z2)), atol=1e-6)
    for trials in range(1, 200):
        for outcome in (True, False):
            interval = wilson(np.full(trials, outcome))
            assert interval.low <= interval.mean <= interval.high


TAGS = """
return/mean return/team time/round_s time/collect_s time/compute_s time/decode_s code/received
code/late code/exact code/condition code/error_bound bytes_sent/sections bytes_received/coded
"""


def test_the_tags_of_an_iteration_are_the_public_ones_and_unknown_numbers_have_none() -> None:
    assert set(scalars(record())) == set(TAGS.split())
    more = {"win_rate": 0.5, "play_s": 1.0, "update_s": 1.0, "iteration_s": 1.0, "variance": 0.5}
    rates = {"agent_updates_per_s": 9.0, "env_steps_per_s": 8.0}
    known = scalars(record(0, statistics={"loss": None, "epsilon": 1}, **rates, **more))
    added = {"win_rate", "time/play_s", "time/update_s", "time/iteration_s", "code/variance"}
    assert set(known) - set(TAGS.split()) == added | rates.keys() | {"epsilon"}
    assert {type(value) for value in known.values()} == {float}


def test_an_evaluation_has_both_bounds_of_the_numbers_that_an_iteration_has() -> None:
    both, won = Interval(3.0, 2.0, 5.0), Interval(0.5, 0.25, 0.75)
    played = EvaluationRecord(iteration=0, term=1, returns=both, sides={"prey": both}, win_rate=won)
    assert intervals(played) == {"return/mean": both, "return/prey": both, "win_rate": won}
    assert scalars(played) == {
        **{"return/mean": 3.0, "return_low/mean": 2.0, "return_high/mean": 5.0},
        **{"return/prey": 3.0, "return_low/prey": 2.0, "return_high/prey": 5.0},
        **{"win_rate": 0.5, "win_rate_low": 0.25, "win_rate_high": 0.75},
    }
