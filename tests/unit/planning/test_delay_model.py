"""What is learnt of delays: the model of a learner, and lateness drawn anew."""

import numpy as np
import pytest

from fullrank.common.types import Times
from fullrank.planning.delay_model import (
    Scenarios,
    completed_cases,
    exchangeable,
    independent,
    lateness,
    resample,
    scenarios,
    typical_unit_s,
)
from fullrank.planning.observation import Window

RNG = np.random.default_rng(0)
ROUNDS, LEARNERS = 200, 10


def window_of(true_s: Times, cut_s: Times, *, load: int = 1) -> Window:
    """Learners that compute for 1 s a unit and are late by ``true_s``, cut off at ``cut_s``."""
    arrival_s = load + true_s
    here = arrival_s <= cut_s[:, None]
    return Window(
        load=np.full(true_s.shape, load),
        compute_s=np.where(here, float(load), np.nan),
        arrival_s=np.where(here, arrival_s, np.nan),
        round_s=cut_s,
    )


def filled(window: Window) -> Scenarios:
    weight = np.full(len(window.round_s), 1.0)
    unit_s = typical_unit_s(window, weight, np.full(window.load.shape[1], np.nan))
    none = np.zeros(window.load.shape)
    return scenarios(
        window,
        weight,
        cases=completed_cases(window, weight, unit_s, none),
        unit_s=unit_s,
        transfer_s=none,
        draws=np.random.default_rng(1),
    )


def test_what_was_cut_off_is_longer_than_the_cut() -> None:
    true_s = RNG.exponential(1.0, (ROUNDS, LEARNERS))
    window = window_of(true_s, np.full(ROUNDS, 2.0))
    found = filled(window)
    cut_off = np.isnan(window.arrival_s)
    assert cut_off.any()
    assert ((found.unit_s + found.delay_s)[cut_off] > 2.0).all()
    np.testing.assert_allclose(found.delay_s[~cut_off], true_s[~cut_off])


def test_cut_off_lateness_is_drawn_from_what_longer_rounds_showed() -> None:
    true_s = RNG.exponential(1.0, (ROUNDS, LEARNERS))
    cut_s = np.where(np.arange(ROUNDS) % 2, 1.5, 9.0)
    found = filled(window_of(true_s, cut_s))
    assert found.delay_s.mean() == pytest.approx(1.0, rel=0.1)
    assert np.quantile(found.delay_s, 0.9) == pytest.approx(np.log(10), rel=0.1)


def test_lateness_of_learners_without_a_row_is_that_of_the_others_and_beyond_the_round() -> None:
    """Late learners are cut off at 2 s in every round, so that no case tells how late they are."""
    true_s = np.where(RNG.random((ROUNDS, LEARNERS)) < 0.4, 9.0, 0.0)
    window = window_of(true_s, np.full(ROUNDS, 2.0))
    spare = slice(7, LEARNERS)
    for array, blank in ((window.load, 0), (window.compute_s, np.nan), (window.arrival_s, np.nan)):
        array[:, spare] = blank
    late = filled(window).delay_s[:, spare] >= 1.0
    assert late.mean() == pytest.approx(0.4, abs=0.05)


def test_only_a_learner_that_never_answers_has_stopped() -> None:
    true_s = np.where(RNG.random((ROUNDS, LEARNERS)) < 0.3, 50.0, 0.0)
    assert not filled(window_of(true_s, np.full(ROUNDS, 1.0))).stopped.any()
    true_s[-60:, 4] = 50.0
    assert filled(window_of(true_s, np.full(ROUNDS, 1.0))).stopped.tolist() == [
        learner == 4 for learner in range(LEARNERS)
    ]


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
