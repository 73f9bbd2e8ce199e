"""The optima of the small games, by exhaustive search or dynamic programming."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray
from fullrank.config import load, to_toml
from fullrank.environments import make_environment
from fullrank.environments.matrix_game import GAMES
from fullrank.training.evaluation import evaluate

from .recordings import AnyArray


def one_hot(choices: AnyArray, actions: int) -> FloatArray:
    """Joint actions from the choices of all agents, shape (E, M)."""
    joint: FloatArray = np.eye(actions, dtype=np.float32)[choices]
    return joint.reshape(len(choices), -1)


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


@pytest.mark.parametrize(("payoff", "best"), [("climbing", 11), ("monotonic", 9)])
def test_the_best_entries_of_the_matrix_games(payoff: str, best: float) -> None:
    environment = make_environment("matrix_game", copies=9, payoff=payoff)
    environment.reset([0] * 9, range(9))
    step = environment.step(one_hot(np.array(list(product(range(3), repeat=2))), 3))
    np.testing.assert_array_equal(step.reward[:, 0].reshape(3, 3), GAMES[payoff])
    assert step.reward.max() == best
    assert step.terminated.all()
    assert step.ended.all()


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
