"""The optima of the small games, by exhaustive search or dynamic programming."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray
from fullrank.config import load, to_toml
from fullrank.environments import make_environment, switch_riddle
from fullrank.environments.matrix_game import GAMES
from fullrank.environments.switch_riddle import FLIP, NOTHING, TELL
from fullrank.environments.two_step_game import PAYOFF
from fullrank.local import LocalRun
from fullrank.training.evaluation import evaluate
from fullrank.wiring import training_of

from .recordings import AnyArray


def one_hot(choices: AnyArray, actions: int) -> FloatArray:
    """Joint actions from the choices of all agents, shape (E, M)."""
    joint: FloatArray = np.eye(actions, dtype=np.float32)[choices]
    return joint.reshape(len(choices), -1)


def additive(game: AnyArray) -> AnyArray:
    """The least-squares fit of a sum of one value per row and one per column."""
    fit: AnyArray = game.mean(axis=1, keepdims=True) + game.mean(axis=0) - game.mean()
    return fit


def test_the_best_policies_of_the_two_step_game_return_8() -> None:
    def returned(first: Sequence[int], second: Sequence[int]) -> float:
        def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
            stage = observation.reshape(-1, 2, 3).argmax(axis=2)[:, 0]
            return one_hot(np.array([[first[s], second[s]] for s in stage]), 2)

        environment = make_environment("two_step_game", copies=1)
        return float(evaluate(environment, act, 1, seed=0).returns[0])

    policies = list(product(range(2), repeat=3))  # an action for each observation
    returns = {pair: returned(*pair) for pair in product(policies, policies)}
    assert max(returns.values()) == 8
    best = {(first[0], first[2], second[2]) for (first, second), r in returns.items() if r == 8}
    assert best == {(1, 1, 1)}


def test_a_sum_of_values_prefers_the_worse_half_of_the_two_step_game() -> None:
    _, safe, risky = PAYOFF
    assert additive(safe).max() == 7
    assert additive(risky).max() == 6.5 < 7 < risky.max()


@pytest.mark.parametrize(("payoff", "best"), [("climbing", 11), ("monotonic", 9)])
def test_the_best_entries_of_the_matrix_games(payoff: str, best: float) -> None:
    environment = make_environment("matrix_game", copies=9, payoff=payoff)
    environment.reset([0] * 9, range(9))
    step = environment.step(one_hot(np.array(list(product(range(3), repeat=2))), 3))
    np.testing.assert_array_equal(step.reward[:, 0].reshape(3, 3), GAMES[payoff])
    assert step.reward.max() == best
    assert step.terminated.all()
    assert step.ended.all()


def ordered(game: AnyArray) -> bool:
    """True if all columns of a matrix prefer its rows in one order."""
    return len(np.unique(np.argsort(game, axis=0), axis=1).T) == 1


def test_only_the_monotonic_game_is_monotonic_and_no_game_is_additive() -> None:
    climbing, monotonic = (np.array(GAMES[name]) for name in ("climbing", "monotonic"))
    assert ordered(monotonic)
    assert ordered(monotonic.T)
    assert not ordered(climbing)
    assert additive(climbing).argmax() != climbing.argmax()
    assert not np.allclose(additive(monotonic), monotonic)


def test_a_matrix_may_be_given() -> None:
    options = {"environment.name": "matrix_game", "environment.payoff": [[1, 2, 3], [4, 5, 6.5]]}
    config = load(options=options).check().config
    assert "payoff = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]" in to_toml(config)
    environment = make_environment("matrix_game", copies=1, **config.environment.params)
    environment.reset([0], [0])
    step = environment.step(np.array([[0, 1, 0, 0, 1]], dtype=np.float32))
    assert step.reward.tolist() == [[6.5, 6.5]]


@pytest.mark.parametrize(
    ("name", "agents", "params"),
    [
        ("two_step_game", 3, {}),
        ("matrix_game", 3, {}),
        ("matrix_game", 0, {"payoff": ((1.0, 2.0), (3.0,))}),
        ("matrix_game", 0, {"payoff": ()}),
        ("switch_riddle", 1, {}),
        ("switch_riddle", 0, {"days": -1}),
    ],
)
def test_impossible_games_are_refused(name: str, agents: int, params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        make_environment(name, agents=agents, copies=1, **params)


class Digits:
    """A source of visitors: the digits of a number, so that equally many seeds are all orders."""

    def __init__(self, number: int) -> None:
        self._number = number

    def integers(self, base: int, *, size: int) -> AnyArray:
        return self._number // base ** np.arange(size) % base


Policy = Callable[[int, int, bool], int]
"""The action in the room, from the day, the number of own earlier visits and the switch."""


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> Callable[..., float]:
    """Exact mean return of policies, one a prisoner: over all orders of visitors."""
    monkeypatch.setattr(switch_riddle, "stream", lambda seed, _: Digits(seed))

    def mean(prisoners: int, days: int, policies: Sequence[Policy]) -> float:
        orders = prisoners**days
        environment = make_environment("switch_riddle", agents=prisoners, copies=orders, days=days)
        observation = environment.reset(range(orders), range(orders))
        visits, running = np.zeros((orders, prisoners), dtype=int), np.ones(orders, dtype=bool)
        returns, everybody = np.zeros(orders), np.arange(orders)
        for day in range(days):
            present, switch = np.moveaxis(observation.reshape(orders, prisoners, 2), 2, 0)
            choices = np.zeros((orders, prisoners), dtype=int)
            who = present.argmax(axis=1)
            tables = np.array(
                [
                    [[policy(day, v, bool(s)) for s in range(2)] for v in range(days)]
                    for policy in policies
                ]
            )
            seen = switch[everybody, who].astype(int)
            deeds = tables[who, visits[everybody, who], seen]
            choices[everybody, who] = np.where(running, deeds, NOTHING)
            visits[everybody, who] += 1
            step = environment.step(one_hot(choices, 3))
            returns += step.reward[:, 0]
            observation, running = step.observation, ~step.ended
        assert not running.any()
        return float(returns.mean())

    return mean


@cache
def oracle(prisoners: int, days: int, visited: int) -> float:
    """Best mean return, from the next day on, of a team that knows how many have visited."""
    if days == 0:
        return 0.0
    again = visited / prisoners

    def best(count: int) -> float:
        tell = 1.0 if count == prisoners else -1.0
        return max(tell, oracle(prisoners, days - 1, count))

    return again * best(visited) + (1 - again) * best(min(visited + 1, prisoners))


def counting(day: int, visits: int, switch: bool) -> int:
    """Off: one prisoner has been in the room; on: two have, so that a newcomer is the third."""
    if visits or not day:
        return NOTHING
    return TELL if switch else FLIP


def second(day: int, visits: int, switch: bool) -> int:
    """Policy of two prisoners: a first visit on a later day is that of the second prisoner."""
    return TELL if day and not visits else NOTHING


@pytest.mark.parametrize(
    ("prisoners", "days", "policy", "optimum"), [(2, 2, second, 1 / 2), (3, 6, counting, 20 / 27)]
)
def test_the_optimum_of_the_riddle_is_that_of_a_team_that_knows_all(
    expected: Callable[..., float], prisoners: int, days: int, policy: Policy, optimum: float
) -> None:
    assert oracle(prisoners, days, 0) == pytest.approx(optimum, abs=1e-12)
    assert expected(prisoners, days, [policy] * prisoners) == pytest.approx(optimum, abs=1e-12)


def reflex(off: int, on: int) -> Policy:
    """The policy that sees nothing but the switch."""
    return lambda _day, _visits, switch: on if switch else off


@pytest.mark.thorough
def test_without_memory_the_riddle_is_not_solved(expected: Callable[..., float]) -> None:
    reflexes = [reflex(off, on) for off, on in product((NOTHING, FLIP, TELL), repeat=2)]
    teams = combinations_with_replacement(reflexes, 3)  # prisoners are alike
    best = max(expected(3, 6, team) for team in teams)
    assert best < 0.25 * 20 / 27


OPTIONS = {
    "environment.name": "switch_riddle",
    "environment.copies": 3,
    "iterations": 3,
    "collect.warmup": 60,
    "algorithm.batch_size": 32,
    "algorithm.hidden": 16,
}


def test_maddpg_plays_the_riddle_and_its_wins_are_reported() -> None:
    iterations = LocalRun(load(options=OPTIONS).check().config).train()
    rates = [iteration.win_rate for iteration in iterations if iteration.return_mean is not None]
    assert rates
    assert all(rate is not None and 0 <= rate <= 1 for rate in rates)


def test_the_wins_of_a_collection_ahead_survive_a_checkpoint() -> None:
    config = load(options=OPTIONS).check().config
    going, resumed = (training_of(config).collector for _ in range(2))
    ahead = going.collect(0)
    resumed.collection.load(going.collection.state(resume_at=0), resume_at=0)
    assert ahead.won is not None
    won = resumed.collect(0).won
    assert won is not None
    assert won.tolist() == ahead.won.tolist()
