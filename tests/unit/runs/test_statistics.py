import numpy as np

from fullrank.runs.statistics import bootstrap, student, wilson


def test_equal_seeds_give_equal_intervals() -> None:
    values = np.arange(10.0)
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1) != bootstrap(values, seed=2)


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
