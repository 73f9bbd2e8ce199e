import numpy as np

from fullrank.common.types import Times
from fullrank.planning.delay_model import Scenarios, exchangeable, independent, lateness, resample

RNG = np.random.default_rng(0)
EQUAL = np.full(100, 0.01)


def past(delay_s: Times) -> Scenarios:
    shape = delay_s.shape
    return Scenarios(
        weight=np.full(shape[0], 1 / shape[0]),
        unit_s=np.ones(shape),
        delay_s=delay_s,
        stopped=np.zeros(shape[1], dtype=np.bool_),
        evidence=float(shape[0]),
    )


def test_chance_lateness_is_drawn_anew_and_stays_joint() -> None:
    delay_s = np.zeros((100, 8))
    for row in delay_s:
        row[RNG.choice(8, 2, replace=False)] = 5.0
    assert exchangeable(lateness(past(delay_s)), EQUAL)
    drawn = resample(past(delay_s), count=400, draws=np.random.default_rng(2))
    assert (drawn.delay_s.sum(axis=1) == 10.0).all()
    patterns = {tuple(row) for row in drawn.delay_s}
    assert len(patterns) == 28  # all pairs of eight


def test_those_who_are_always_late_stay_those() -> None:
    delay_s = np.zeros((100, 8))
    delay_s[:, [2, 5]] = 5.0
    assert not exchangeable(lateness(past(delay_s)), EQUAL)
    drawn = resample(past(delay_s), count=50, draws=np.random.default_rng(2))
    np.testing.assert_array_equal(drawn.delay_s, delay_s[:50])


def test_independent_lateness_is_told_from_joint_lateness() -> None:
    alone = RNG.random((100, 15)) < 0.1
    assert independent(alone, EQUAL)
    assert not independent(np.repeat(alone[:, :1], 15, axis=1), EQUAL)  # all or none
    exactly = np.tile(np.arange(15) < 7, (100, 1))
    assert not independent(exactly, EQUAL)
