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
from fullrank.environments.particle.predator_prey import PredatorPrey
from fullrank.environments.particle.rover_tower import RoverTower
from fullrank.environments.particle.speaker_listener import SpeakerListener

COMPETITIVE = ("predator_prey", "physical_deception", "keep_away")


def stand(environment: Any, *positions: tuple[float, float]) -> None:
    """Put the bodies of copy 0 at rest at the given positions."""
    movers = environment.world.movers
    placed = np.array(positions).T[:, :, None]
    environment.world.place([0], position=placed, velocity=np.zeros((2, movers, 1)))


@pytest.mark.parametrize("name", COMPETITIVE)
def test_competitive_tasks_are_four_against_four_unless_said_otherwise(name: str) -> None:
    sides = [agent.side for agent in make_environment(name, copies=1).agents]
    assert [sides.count(side) for side in dict.fromkeys(sides)] == [4, 4]


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


@pytest.mark.parametrize("agents", [2, 6, 32, 64])
def test_any_even_number_of_rovers_and_towers_plays(agents: int) -> None:
    environment = make_environment("rover_tower", agents=agents, copies=3)
    environment.reset([1, 2, 3], [0, 1, 2])
    step = environment.step(np.zeros((3, 5 * agents), dtype=np.float32))
    assert step.observation.shape == (3, agents // 2 * (agents + 13))
    assert step.reward.shape == (3, agents)


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


def test_every_predator_earns_for_every_catch_and_the_caught_pay() -> None:
    chase = PredatorPrey(adversaries=2, landmarks=0).make(agents=4, copies=1)
    stand(chase, (0, 0), (0.1, 0), (0.05, 0), (-0.5, -0.5))
    assert chase.reward()[:, 0].tolist() == [20.0, 20.0, -20.0, 0.0]


def test_prey_pays_for_leaving() -> None:
    chase = PredatorPrey(adversaries=1, landmarks=0).make(agents=2, copies=1)
    earned = []
    for x in (0.89, 0.95, 1.5, 9.0):
        stand(chase, (0, 0), (x, 0.0))
        earned.append(float(chase.reward()[1, 0]))
    np.testing.assert_allclose(earned, [0.0, -0.5, -np.e, -10.0])


def test_good_agents_earn_the_distances_of_all_adversaries() -> None:
    deception = PhysicalDeception(adversaries=2, landmarks=2).make(agents=4, copies=1)
    stand(deception, (1, 0), (0, 2), (0.5, 0), (3, 0), (0, 0), (7, 7))
    assert deception.reward()[:, 0].tolist() == [-1.0, -4.0, 2.5, 2.5]


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


def test_the_listener_hears_what_was_just_said_and_nothing_at_first() -> None:
    talk = SpeakerListener().make(agents=0, copies=1)
    assert not talk.reset([3], [0])[0, -3:].any()
    said = np.array([[0.2, 0.3, 0.5, 1, 0, 0, 0, 0]], dtype=np.float32)
    np.testing.assert_array_equal(talk.step(said).observation[0, -3:], said[0, :3])
    assert not talk.reset([3], [0])[0, -3:].any()


def test_a_rover_hears_its_own_tower_alone() -> None:
    guidance = RoverTower().make(agents=6, copies=1)
    guidance.reset([5], [0])
    guidance.tower_rover[:, 0] = [2, 0, 1]
    words = np.eye(5, dtype=np.float32)[[1, 3, 4]]
    action = np.concatenate([np.zeros((3, 5), dtype=np.float32), words]).reshape(1, -1)
    rovers = guidance.step(action).observation[0, : 3 * 12].reshape(3, 12)
    assert rovers[:, :3].argmax(axis=1).tolist() == [1, 2, 0]  # the tower of each rover
    np.testing.assert_array_equal(rovers[:, 3:8], words[[1, 2, 0]])


def test_both_of_a_pair_earn_for_the_rover_at_its_goal() -> None:
    guidance = RoverTower(landmarks=2).make(agents=4, copies=1)
    guidance.tower_rover[:, 0], guidance.tower_goal[:, 0] = [1, 0], [0, 1]
    stand(guidance, (0, 0), (1, 1), (9, 9), (9, 9), (1, 1.1), (0, 2))
    np.testing.assert_allclose(guidance.reward()[:, 0], [-4.0, 9.99, 9.99, -4.0], atol=1e-12)


def test_towers_neither_move_nor_push() -> None:
    guidance = RoverTower().make(agents=4, copies=1)
    guidance.reset([5], [0])
    before = guidance.world.position.copy()
    guidance.step(np.tile(np.eye(5, dtype=np.float32)[1], 4)[None])
    moved = (guidance.world.position != before).any(axis=(0, 2))
    assert moved.tolist() == [True, True] + [False] * 8


@given(seed=st.integers(0, 2**40))
def test_every_episode_pairs_each_tower_with_a_rover_of_its_own(seed: int) -> None:
    guidance = RoverTower().make(agents=8, copies=2)
    guidance.reset([seed, seed + 1], [0, 1])
    assert np.array_equal(np.sort(guidance.tower_rover, axis=0), np.tile(np.arange(4), (2, 1)).T)
    assert guidance.tower_goal.min() >= 0
    assert guidance.tower_goal.max() < 6


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
