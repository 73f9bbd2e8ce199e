"""Value-based algorithms refuse sides whose rewards they would add up."""

from typing import Any

import numpy as np
import pytest
from tests.unit.environments.games import Hunt

from fullrank.common.errors import ConfigError
from fullrank.config import load
from fullrank.local import LocalRun
from fullrank.training.survey import payment_of
from fullrank.wiring.training import training_of

GAMES = Hunt.__module__
SMALL: dict[str, Any] = {
    "algorithm.hidden": 8,
    "algorithm.batch_size": 4,
    "collect.warmup": 12,
    "collect.warmup_copies": 1,
    "environment.copies": 1,
    "iterations": 1,
}


def run(environment: str, algorithm: str, **params: Any) -> LocalRun:
    given = {f"environment.{key}": value for key, value in params.items()}
    names = {"environment.name": environment, "algorithm.name": algorithm}
    return LocalRun(load(options=SMALL | names | given).check().config)


@pytest.mark.parametrize("algorithm", ["qmix", "vdn", "iql"])
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (f"{GAMES}:Hunt", "wolf and sheep are sides that are paid apart; use maddpg.* sides, a m"),
        (f"{GAMES}:Pennies", "those of player_0, player_1 cancel in every step of random play; us"),
        ("predator_prey", "predator and prey are sides .* where the algorithm has it$"),
    ],
)
def test_sides_are_refused_by_name_before_the_first_iteration(
    environment: str, algorithm: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"learns from the sum of all rewards, and {message}"):
        run(environment, algorithm).train()


@pytest.mark.parametrize(
    ("environment", "params"),
    [
        (f"{GAMES}:Hunt", {"alike": True}),
        (f"{GAMES}:Hunt", {"sides": {"wolf_0": "team", "sheep_0": "team"}}),
        ("speaker_listener", {}),
        ("two_step_game", {}),
    ],
)
def test_agents_of_one_team_are_learned_whatever_their_names(
    environment: str, params: dict[str, Any]
) -> None:
    run(environment, "vdn", **params).train()


def test_an_environment_may_name_its_sides() -> None:
    params = {"sides": {"wolf_0": "pack", "sheep_0": "flock"}}
    agents = run(f"{GAMES}:Hunt", "maddpg", **params).training.collector.agents
    assert [agent.side for agent in agents] == ["pack", "flock"]
    with pytest.raises(Exception, match=r"its sides leave out \['sheep_0'\]"):
        run(f"{GAMES}:Hunt", "maddpg", sides={"wolf_0": "pack"})


def test_a_run_that_only_plays_is_not_refused() -> None:
    options = SMALL | {"environment.name": "predator_prey", "algorithm.name": "qmix"}
    training_of(load(options=options).check().config).collector.close()


@pytest.mark.parametrize(
    ("reward", "alive", "alike", "cancels"),
    [
        ([[1, 1], [2, 2]], [[1, 1], [1, 1]], True, False),
        ([[1, -1], [0, 0]], [[1, 1], [1, 1]], False, True),
        ([[0, 0], [0, 0]], [[1, 1], [1, 1]], False, False),
        ([[1, 1], [1, 0]], [[1, 1], [1, 0]], True, False),
        ([[1, 1], [1, 0]], [[1, 1], [1, 1]], False, False),
        ([[0.1 + 0.2, -0.3]], [[1, 1]], False, True),
        ([[0], [0]], [[1], [1]], False, False),
    ],
)
def test_rewards_tell_friend_from_foe(
    reward: list[list[float]], alive: list[list[int]], alike: bool, cancels: bool
) -> None:
    judged = payment_of(np.array(reward, float), np.array(alive, bool))
    assert judged == (alike, cancels)
