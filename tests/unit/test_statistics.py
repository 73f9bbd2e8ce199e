import numpy as np

from fullrank.statistics import bootstrap


def test_the_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    trials = 200
    covered = 0
    for _ in range(trials):
        interval = bootstrap(generator.exponential(3.0, size=100))
        covered += interval.low <= 3.0 <= interval.high
    assert 0.88 <= covered / trials <= 0.99  # 0.95 less the bootstrap's own shortfall at n = 100


def test_equal_values_have_no_spread() -> None:
    assert bootstrap(np.full(7, -2.5)) == (-2.5, -2.5, -2.5)


def test_equal_seeds_give_equal_intervals() -> None:
    values = np.arange(10.0)
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1) != bootstrap(values, seed=2)


def test_it_reads_as_mean_and_interval() -> None:
    assert str(bootstrap(np.array([1.0]))) == "1.0 [1.0, 1.0]"
