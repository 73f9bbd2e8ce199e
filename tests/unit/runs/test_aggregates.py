"""Aggregates over tasks: known values, names of tasks and methods, and verdicts."""

from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from scipy.stats import trim_mean

from fullrank.cli.figures import latex
from fullrank.common.errors import ConfigError
from fullrank.runs.aggregates import (
    OverStrata,
    Study,
    band,
    by_task,
    improvement,
    interquartile_mean,
    mean,
    on_grid,
    share,
)
from fullrank.runs.statistics import RunResult


def runs(task: str, method: str, values: Sequence[float], **changes: Hashable) -> list[RunResult]:
    return [
        RunResult(
            settings={"environment.name": task, "algorithm.name": method, **changes},
            seed=seed,
            iterations=1,
            scores={"team": value},
            measure="return/mean",
            episodes=[value - 1.0, value + 1.0],
        )
        for seed, value in enumerate(values)
    ]


def test_a_band_contains_its_centre_and_that_of_equal_runs_is_a_line() -> None:
    values = np.random.default_rng(0).normal(size=(8, 5))
    centre, low, high = band([values, values + 1.0], interquartile_mean)
    pooled = np.concatenate([values, values + 1.0])
    np.testing.assert_allclose(centre, trim_mean(pooled, 0.25, axis=0))
    assert (low < centre).all()
    assert (centre < high).all()
    assert [each.tolist() for each in band([np.ones((3, 2))], mean)] == [[1.0, 1.0]] * 3


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        *(((runs_each,) * tasks, 0.92) for tasks in (1, 3) for runs_each in (2, 3, 5, 8)),
        ((9, 3), 0.92),
        ((10, 2), 0.88),  # two runs are often close together: Welch's interval covers 90 %
    ],
)
@pytest.mark.parametrize("statistic", [interquartile_mean, mean])
def test_a_band_of_few_runs_covers_the_true_mean_as_often_as_it_says(
    sizes: Sequence[int], least: float, statistic: OverStrata
) -> None:
    generator = np.random.default_rng(0)
    _, low, high = band([generator.normal(size=(runs_each, 400)) for runs_each in sizes], statistic)
    assert least <= ((low <= 0) & (high >= 0)).mean() <= 0.99


@pytest.mark.parametrize("others", [[0.0], [-1.0, 1.0], [-1.0, 1.0] * 5])
def test_a_mean_over_a_task_with_one_run_has_no_band(others: list[float]) -> None:
    tasks = [np.array(others)[:, None], np.ones((1, 1))]
    centre, low, high = band(tasks, mean)
    assert centre.tolist() == [0.5]
    assert np.isnan([low, high]).all()


def test_runs_are_drawn_within_their_task() -> None:
    tasks = [np.zeros((4, 1)), np.full((4, 1), 100.0)]
    assert [each.tolist() for each in band(tasks, mean)] == [[50.0]] * 3


def test_the_probability_of_improvement_counts_pairs_of_one_task() -> None:
    first, second = np.array([[1.0], [3.0]]), np.array([[1.0], [2.0]])
    pairs = (0.5 + 0.0 + 1.0 + 1.0) / 4
    assert share([first, second], improvement).centre.tolist() == [pairs]
    both = share([first, second - 9.0, second, first - 9.0], improvement)
    assert both.centre.tolist() == [(pairs + (1 - pairs)) / 2]


def test_curves_are_compared_where_all_of_them_have_been() -> None:
    grid, values = on_grid([{0.0: 0.0, 10.0: 10.0}, {2.0: 1.0, 20.0: 1.0}], points=3)
    assert grid.tolist() == [2.0, 6.0, 10.0]
    assert values.tolist() == [[2.0, 6.0, 10.0], [1.0, 1.0, 1.0]]


def test_names_have_the_settings_that_set_runs_of_one_task_apart() -> None:
    played = [
        *runs("a", "vdn", [1.0], learners=3, algorithm__hidden=8),
        *runs("a", "vdn", [1.0], learners=3, algorithm__hidden=16),
        *runs("b", "vdn", [1.0], learners=4, algorithm__hidden=8),
        *runs("b", "iql", [1.0], learners=4, algorithm__hidden=8),
    ]
    cells = {task: [*methods] for task, methods in by_task(played).items()}
    assert cells == {
        "a": ["vdn algorithm__hidden=8", "vdn algorithm__hidden=16"],
        "b": ["vdn", "iql"],
    }


def test_a_better_method_is_called_better_if_it_is_surely_so() -> None:
    better, worse = [10.0, 11.0, 12.0], [1.0, 2.0, 3.0]
    two = [
        run
        for task in ("a", "b")
        for run in (*runs(task, "iql", worse), *runs(task, "vdn", better))
    ]
    study = Study.of(two)
    assert study.methods == ["vdn", "iql"]
    assert study.score("vdn").centre[0] == pytest.approx((9 + 10 + 11) / 3 / 11)
    assert study.verdict() == [
        "vdn is better than iql; probability of improvement 1.00 [1.00, 1.00]"
    ]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], ", too few runs"), ([1.0, 4.0] * 4, [2.0, 3.0] * 4, "")],
)
def test_what_chance_may_explain_is_undecided(
    first: list[float], second: list[float], reason: str
) -> None:
    (line,) = Study.of([*runs("a", "vdn", first), *runs("a", "iql", second)]).verdict()
    assert f"undecided{reason};" in line


def test_methods_without_a_common_task_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="no task"):
        Study.of([*runs("a", "vdn", [1.0]), *runs("b", "iql", [1.0])])


def test_a_task_with_one_run_has_no_interval_in_the_table() -> None:
    spread = [40.0, 45.0, 50.0, 55.0, 60.0]
    text = latex(Study.of([*runs("a", "vdn", spread), *runs("b", "vdn", [70.0])]))
    (line,) = [line for line in text.splitlines() if line.startswith("vdn")]
    many, one, score = line.removesuffix(r" \\").split(" & ")[1:]
    assert many.startswith("$50.0\\ [")
    assert one == "$70.0$"
    assert "[" not in score
