"""The particle tasks beyond the recordings: their sizes and the rules of their rewards."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import ConfigError
from fullrank.environments import make_environment, variant_of
from fullrank.environments.particle.keep_away import KeepAway
from fullrank.environments.particle.physical_deception import PhysicalDeception

COMPETITIVE = ("predator_prey", "physical_deception", "keep_away")


@given(
    name=st.sampled_from(COMPETITIVE),
    agents=st.integers(2, 9),
    landmarks=st.integers(1, 6),
    data=st.data(),
)
def test_any_number_of_agents_adversaries_and_landmarks_plays(
    name: str, agents: int, landmarks: int, data: st.DataObject
) -> None:
    adversaries = data.draw(st.integers(1, agents - 1))
    environment = make_environment(
        name, agents=agents, copies=2, adversaries=adversaries, landmarks=landmarks
    )
    counted = "prey" if name == "predator_prey" else "adversary"
    assert sum(agent.side == counted for agent in environment.agents) == adversaries
    environment.reset([1, 2], [0, 1])
    action = np.tile(np.eye(5, dtype=np.float32)[1], (2, agents))
    step = environment.step(action)
    size = sum(agent.observation_size for agent in environment.agents)
    assert step.observation.shape == (2, size)
    assert np.isfinite(step.observation).all()
    assert np.isfinite(step.reward).all()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("cooperative_navigation", {"agents": 1}),
        ("cooperative_navigation", {"agents": 5}),
        ("keep_away", {"agents": 5, "landmarks": 2}),
        ("keep_away", {"agents": 5, "landmarks": 4}),
        ("physical_deception", {"agents": 4}),
        ("predator_prey", {"agents": 4}),
        ("rover_tower", {"agents": 6}),
        ("speaker_listener", {}),
    ],
)
def test_every_entry_that_is_not_declared_always_zero_takes_other_values(
    name: str, params: dict[str, Any]
) -> None:
    environment = make_environment(name, copies=20, **params)
    seen = environment.reset(range(20), range(20)).any(axis=0)
    generator = np.random.default_rng(0)
    actions = sum(agent.action.size for agent in environment.agents)
    for _ in range(10):
        seen |= environment.step(generator.random((20, actions), np.float32)).observation.any(0)
    own = np.split(seen, np.cumsum([agent.observation_size for agent in environment.agents])[:-1])
    for agent, taken in zip(environment.agents, own, strict=True):
        assert agent.live == tuple(np.flatnonzero(taken))


IMPOSSIBLE = [
    ("predator_prey", 1, {}, "1 <= K < M"),
    ("predator_prey", 4, {"adversaries": 4}, "1 <= K < M; M = 4, K = 4"),
    ("predator_prey", 4, {"adversaries": -1}, "1 <= K < M"),
    ("predator_prey", 4, {"landmarks": -1}, "at least 0, are needed; L = -1"),
    ("physical_deception", 3, {"adversaries": 3}, "1 <= K < M; M = 3, K = 3"),
    ("physical_deception", 3, {"landmarks": -2}, "at least 1, are needed; L = -2"),
    ("keep_away", 2, {"adversaries": 2}, "1 <= K < M; M = 2, K = 2"),
    ("keep_away", 2, {"landmarks": 0}, "at least 1, are needed; L = 0"),
    ("speaker_listener", 3, {}, "M = 2: 3"),
    ("rover_tower", 7, {}, "M must be even, at least 2: 7"),
    ("rover_tower", 8, {"landmarks": 0}, "at least 1, are needed; L = 0"),
    ("rover_tower", 8, {"horizon": 0}, "horizon must be at least 1: 0"),
]


@pytest.mark.parametrize(("name", "agents", "params", "rule"), IMPOSSIBLE)
def test_an_impossible_size_names_its_rule(
    name: str, agents: int, params: dict[str, int], rule: str
) -> None:
    with pytest.raises(ConfigError, match=rule):
        make_environment(name, agents=agents, copies=1, **params)


def test_adversaries_never_see_which_landmark_is_the_goal() -> None:
    for task in (PhysicalDeception(landmarks=3), KeepAway(landmarks=3)):
        environment = task.make(agents=4, copies=3)
        stands = np.broadcast_to(np.linspace(-1, 1, 14).reshape(2, 7, 1), (2, 7, 3))
        environment.world.place(range(3), position=stands, velocity=np.zeros((2, 4, 3)))
        environment.goal[:] = [0, 1, 2]
        seen = environment.observation()
        ignorant = sum(a.observation_size for a in environment.agents if a.side == "adversary")
        assert (seen[:, :ignorant] == seen[:1, :ignorant]).all()
        assert (seen[:, ignorant:] != seen[:1, ignorant:]).any(axis=1).tolist()[1:] == [True, True]


@pytest.mark.parametrize(("landmarks", "components"), [(1, 3), (2, 3), (3, 3), (5, 5)])
def test_keep_away_tells_landmarks_apart_by_colour_up_to_two(
    landmarks: int, components: int
) -> None:
    pushing = KeepAway(landmarks=landmarks, adversaries=1).make(agents=2, copies=landmarks)
    pushing.goal[:] = np.arange(landmarks)
    good = pushing.observation()[:, pushing.agents[0].observation_size :]
    own = good[:, 4 : 4 + components]
    start = 4 + components + 2 * landmarks
    colours = good[0, start : start + landmarks * components].reshape(landmarks, components)
    assert (own.argmax(axis=1) == colours.argmax(axis=1)).all()
    assert len(np.unique(own, axis=0)) == landmarks


@pytest.mark.parametrize(
    ("name", "params", "variant"),
    [
        ("predator_prey", {}, "openai"),
        ("mpe2.simple_tag_v3:parallel_env", {}, "mpe2"),
        ("pettingzoo", {"factory": "mpe2.simple_tag_v3:parallel_env"}, "mpe2"),
    ],
)
def test_results_can_name_whose_rules_were_played(
    name: str, params: dict[str, str], variant: str
) -> None:
    assert variant_of(name, params) == variant
