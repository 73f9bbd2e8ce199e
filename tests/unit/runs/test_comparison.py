"""Groups of runs, their labels, and intervals over runs."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from fullrank.runs.statistics import (
    RunResult,
    bootstrap,
    difference,
    grouped,
    interquartile_means,
    labels,
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
    interval = bootstrap(np.array(values, float), statistic=interquartile_means)
    assert interval.mean == trim_mean(np.array(values, float), 0.25)
    assert min(values) <= interval.low <= interval.high <= max(values)
