import numpy as np
import pytest

from fullrank.common.types import Times, Vector
from fullrank.planning import TUNING
from fullrank.planning.planner import iterations_since_pace_change, rounds_since_change


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
