"""Environments without a capability behave like those with its default."""

from collections.abc import Sequence

import numpy as np
import pytest

from fullrank.common.errors import EnvironmentFailed
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import AgentSpec, Discrete, Step, make_environment
from fullrank.environments.capabilities import (
    Contested,
    Masked,
    Shared,
    Stated,
    available_of,
    chosen_actions,
    shares_reward,
    state_of,
    state_size,
)

AGENTS: tuple[AgentSpec, ...] = (
    AgentSpec(name="scout", observation_size=1, action=Discrete(2)),
    AgentSpec(name="tank", observation_size=2, action=Discrete(3)),
)
AVAILABLE = np.array([[1, 0, 1, 1, 0], [0, 1, 0, 1, 1]], dtype=bool)


class Capable:
    """Two copies of two agents, with every capability."""

    agents, copies, state_size, shared_reward = AGENTS, 2, 4, True

    def reset(self, seeds: Sequence[int], copies: Sequence[int]) -> FloatArray:
        return np.zeros((2, 3), dtype=np.float32)

    def step(self, action: FloatArray) -> Step:
        """Every episode is one step long, and the first copy wins."""
        return Step(
            observation=np.zeros((2, 3), dtype=np.float32),
            reward=np.array([[1.0, 1.0], [0.0, 0.0]]),
            terminated=np.ones((2, 2), dtype=bool),
            alive=np.zeros((2, 2), dtype=bool),
            ended=np.ones(2, dtype=bool),
        )

    def state(self) -> FloatArray:
        return np.full((2, 4), 7.0, dtype=np.float32)

    def available(self) -> BoolArray:
        return AVAILABLE

    def won(self) -> BoolArray:
        return np.array([True, False])

    def close(self) -> None:
        pass


def test_an_environment_with_the_members_has_the_capabilities() -> None:
    environment = Capable()
    observation = environment.step(one_hot((0, 1), (1, 2))).observation
    for capability in (Stated, Masked, Contested, Shared):
        assert isinstance(environment, capability)
    assert state_size(environment) == 4
    np.testing.assert_array_equal(state_of(environment, observation), environment.state())
    np.testing.assert_array_equal(available_of(environment), AVAILABLE)
    assert shares_reward(environment)


def test_an_environment_without_capabilities_has_the_defaults() -> None:
    environment = make_environment("cooperative_navigation", copies=2)
    for capability in (Stated, Masked, Contested, Shared):
        assert not isinstance(environment, capability)
    observation = environment.reset([1, 2], [0, 1])
    assert state_size(environment) == observation.shape[1]
    np.testing.assert_array_equal(state_of(environment, observation), observation)
    assert available_of(environment).shape == (2, 15)
    assert available_of(environment).all()
    assert not shares_reward(environment)


def one_hot(*choices: tuple[int, int]) -> FloatArray:
    rows = [np.concatenate([np.eye(2)[a], np.eye(3)[b]]) for a, b in choices]
    return np.array(rows, dtype=np.float32)


def test_available_actions_are_read_from_their_one_hot_vectors() -> None:
    alive = np.ones((2, 2), dtype=bool)
    chosen = chosen_actions(AGENTS, one_hot((0, 1), (1, 2)), available=AVAILABLE, alive=alive)
    assert chosen.tolist() == [[0, 1], [1, 2]]


def test_an_unavailable_action_is_refused_with_the_names_of_agent_and_copy() -> None:
    alive = np.ones((2, 2), dtype=bool)
    with pytest.raises(EnvironmentFailed, match="tank of copy 1 chose action 0, which is not"):
        chosen_actions(AGENTS, one_hot((0, 1), (1, 0)), available=AVAILABLE, alive=alive)
    alive[1, 1] = False
    chosen_actions(AGENTS, one_hot((0, 1), (1, 0)), available=AVAILABLE, alive=alive)
