"""References bound returns from both sides, on the episodes that policies are evaluated on."""

from contextlib import closing

import numpy as np
import pytest

from fullrank.environments import make_environment
from fullrank.training.evaluation import Evaluation, evaluate
from fullrank.training.references import gap_closed, references, share_closed


def played(
    name: str, agents: int, *, episodes: int = 40, **params: object
) -> dict[str, Evaluation]:
    with closing(make_environment(name, agents=agents, copies=20, **params)) as environment:
        return {
            reference: evaluate(environment, act, episodes, 7)
            for reference, act in references(environment, seed=0).items()
        }


@pytest.mark.parametrize(
    ("name", "agents", "least"),
    [
        ("cooperative_navigation", 3, -370.0),
        ("cooperative_navigation", 8, -3300.0),
        ("food_collection", 3, 40.0),
        ("food_collection", 12, 140.0),
    ],
)
def test_steering_to_assigned_targets_beats_random_play_and_standing_still(
    name: str, agents: int, least: float
) -> None:
    means = {policy: each.returns.mean() for policy, each in played(name, agents).items()}
    assert means["good"] > least
    assert max(means["random"], means["still"]) < means["good"] - 0.4 * abs(means["still"])


def test_aligned_spins_earn_the_most_that_a_step_pays() -> None:
    spins = played("ising", 9)
    assert set(spins) == {"random", "good"}
    assert np.array_equal(spins["good"].returns, np.full(40, 2.0 * 9 * 25))


def test_a_contest_has_no_good_policy_and_no_gap() -> None:
    contest = played("keep_away", 4)
    assert set(contest) == {"random", "still"}
    assert share_closed({**contest, "trained": contest["still"]}, "trained") is None


def test_more_targets_than_agents_leave_no_agent_without_one() -> None:
    food = played("food_collection", 3, food=6)
    assert food["good"].returns.mean() > food["still"].returns.mean()


def test_the_gap_is_0_for_random_play_and_1_for_the_good_policy() -> None:
    generator = np.random.default_rng(0)
    random, good = generator.normal(-10, 1, 50), generator.normal(10, 1, 50)
    assert gap_closed(random, random, good) == (0.0, 0.0, 0.0)
    assert gap_closed(good, random, good) == (1.0, 1.0, 1.0)
    half = gap_closed((random + good) / 2, random, good)
    assert half.low - 1e-9 <= 0.5 <= half.high + 1e-9
    assert half.mean == pytest.approx(0.5)
