"""Cooperative navigation: its configuration and physics beyond the recordings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import Discrete, make_environment
from fullrank.environments.particle.cooperative_navigation import CooperativeNavigation


def test_the_default_is_three_agents_that_see_eighteen_numbers() -> None:
    environment = make_environment("cooperative_navigation", copies=2)
    assert [agent.name for agent in environment.agents] == ["agent_0", "agent_1", "agent_2"]
    assert {agent.observation_size for agent in environment.agents} == {18}
    assert {agent.action for agent in environment.agents} == {Discrete(5, relaxed=True)}


def test_an_episode_ends_at_its_horizon_and_never_terminates() -> None:
    environment = make_environment("cooperative_navigation", copies=1, horizon=3)
    environment.reset([0], [0])
    steps = [environment.step(np.zeros((1, 15), dtype=np.float32)) for _ in range(3)]
    assert [bool(step.ended[0]) for step in steps] == [False, False, True]
    assert not any(step.terminated.any() for step in steps)
    assert all(step.alive.all() for step in steps)


def test_a_reset_copy_counts_its_steps_anew() -> None:
    environment = make_environment("cooperative_navigation", copies=2, horizon=2)
    environment.reset([0, 1], [0, 1])
    still = np.zeros((2, 15), dtype=np.float32)
    environment.step(still)
    environment.reset([2], [1])
    assert environment.step(still).ended.tolist() == [True, False]


def test_action_one_accelerates_to_the_right() -> None:
    environment = CooperativeNavigation().make(agents=1, copies=1)
    environment.reset([0], [0])
    start = environment.world.position.copy()
    environment.step(np.array([[0, 1, 0, 0, 0]], dtype=np.float32))
    moved = (environment.world.position - start)[:, 0, 0]
    np.testing.assert_allclose(moved, [0.05, 0.0], rtol=1e-12)  # 5 * 0.1 * 0.1


@given(seed=st.integers(0, 2**40), agents=st.integers(2, 6))
def test_pushes_between_agents_cancel(seed: int, agents: int) -> None:
    environment = CooperativeNavigation().make(agents=agents, copies=1)
    environment.reset([seed], [0])
    crowded = environment.world.position * 0.1
    at_rest = np.zeros((2, agents, 1))
    environment.world.place([0], position=crowded, velocity=at_rest)
    environment.step(np.zeros((1, 5 * agents), dtype=np.float32))
    velocity = environment.world.velocity
    assert np.abs(velocity).max() > 0.1
    np.testing.assert_allclose(velocity.sum(axis=1), 0.0, atol=1e-12 * np.abs(velocity).max())


@pytest.mark.parametrize(
    ("params", "agents", "named"),
    [({}, -1, "agents"), ({"horizon": 0}, 3, "horizon"), ({"horizont": 9}, 3, "'horizon'")],
)
def test_an_impossible_configuration_is_named(
    params: dict[str, int], agents: int, named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        make_environment("cooperative_navigation", agents=agents, copies=1, **params)
