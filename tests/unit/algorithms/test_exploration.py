"""Exploration of teams that learn values: how often they err, and among which actions."""

import numpy as np
import pytest

from fullrank.algorithms import EnvironmentSpec
from fullrank.algorithms.qmix import QMIX
from fullrank.algorithms.trajectories import ValueActor
from fullrank.common.errors import ConfigError
from fullrank.environments import AgentSpec, Discrete

AGENTS = tuple(
    AgentSpec(name=f"agent_{i}", observation_size=7, action=Discrete(5)) for i in range(3)
)
ENVIRONMENT = EnvironmentSpec(agents=AGENTS, state_size=11)


def test_the_actor_explores_among_available_actions_and_remembers_what_it_did() -> None:
    algorithm = QMIX().make(ENVIRONMENT, seed=0, device="cpu")
    actor = algorithm.actor
    assert isinstance(actor, ValueActor)
    generator = np.random.default_rng(0)
    observation = generator.standard_normal((400, 21), dtype=np.float32)
    available = np.tile([[True, False, True, True, False]], (400, 3))
    alive = np.ones((400, 3), bool)
    memory = actor.memory(400)
    action, after = actor.act(
        observation, memory, iteration=0, step=0, alive=alive, available=available
    )
    counts = action.reshape(-1, 5).sum(axis=0)
    assert counts[1] == counts[4] == 0
    assert counts[[0, 2, 3]].min() > 340
    np.testing.assert_array_equal(after[1].reshape(400, -1), action)
    actor.anneal(10**6)
    settled, _ = actor.act(
        observation, memory, iteration=0, step=0, alive=alive, available=available
    )
    greedy, _ = actor.act_greedily(observation, memory, available=available)
    assert 0.02 < (settled != greedy).reshape(-1, 5).any(axis=1).mean() < 0.05


def test_each_episode_explores_by_a_probability_of_its_own_from_epsilon_to_its_multiple() -> None:
    algorithm = QMIX(exploration_spread=4.0).make(ENVIRONMENT, seed=0, device="cpu")
    actor = algorithm.actor
    assert isinstance(actor, ValueActor)
    actor.anneal(10**6)
    observation = np.random.default_rng(0).standard_normal((400, 21), dtype=np.float32)
    alive, memory = np.ones((400, 3), bool), actor.memory(400)
    explored, places = np.zeros(400), []
    for step in range(60):
        greedy, _ = actor.act_greedily(observation, memory)
        action, memory = actor.act(observation, memory, iteration=0, step=step, alive=alive)
        explored += (action != greedy).reshape(400, 3, 5).any(axis=2).mean(axis=1) / 60
        places.append(memory[2])
    assert all(np.array_equal(place, places[0]) for place in places)
    assert 0.0 < places[0].min() < 0.02 < 0.98 < places[0].max() <= 1.0
    probability = 0.05 + places[0][:, 0] * 0.15
    for most in (0.1, 0.2):  # a random action of five is the best one in one case of five
        some = (probability <= most) & (probability > most - 0.05)
        assert explored[some].mean() == pytest.approx(0.8 * probability[some].mean(), rel=0.1)
    with pytest.raises(ConfigError, match="exploration_spread must be at least 1"):
        QMIX(exploration_spread=0.5)


def test_exploration_falls_linearly_and_stays() -> None:
    exploration = QMIX(exploration_steps=50_000).exploration
    assert [exploration(steps) for steps in (0, 25_000, 50_000, 10**9)] == pytest.approx(
        [1.0, 0.525, 0.05, 0.05]
    )
