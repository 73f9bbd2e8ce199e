import numpy as np
import pytest

from fullrank.common.types import Times, Vector
from fullrank.planning import TUNING
from fullrank.planning.change_detection import iterations_since_pace_change, rounds_since_change


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


def test_most_rounds_a_little_quicker_are_noticed() -> None:
    assert since(0.4 * uniform(TUNING.tested_rounds, seed=0), seconds=0.8) > 20


def test_a_few_rounds_longer_than_all_that_was_forecast_are_noticed() -> None:
    ranks = 0.9 * uniform(TUNING.tested_rounds, seed=0)
    ranks[[-19, -15, -10, -4, -1]] = 1.0
    assert since(ranks) == 19


def test_the_rounds_before_the_change_are_told_from_those_after() -> None:
    found = [
        since(np.append(uniform(30, seed=seed), 0.9 + 0.1 * uniform(10, seed=100 + seed)))
        for seed in range(50)
    ]
    assert np.median(found) == pytest.approx(10, abs=2)


def test_a_change_that_moves_the_mean_by_little_is_no_reason_to_forget() -> None:
    assert since(np.ones(TUNING.tested_rounds), seconds=1.02) == 0


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


def test_a_hiccup_of_two_iterations_is_no_change() -> None:
    pace = paces(100, seed=0)
    pace[-2:] *= 10.0
    assert iterations_since_pace_change(pace) == 0


def test_learners_seen_too_seldom_tell_nothing() -> None:
    assert iterations_since_pace_change(np.full((50, LEARNERS), np.nan)) == 0
    assert (
        iterations_since_pace_change(np.append(np.ones((7, 2)), np.full((9, 2), 9.0), axis=0)) == 0
    )
