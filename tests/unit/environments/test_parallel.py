"""The library's environments pass PettingZoo's own tests, and agree with the arrays."""

import warnings

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from fullrank.common.errors import ConfigError
from fullrank.environments import environments, make_environment, parallel
from fullrank.environments.parallel import ParallelFace, cooperative_navigation_v0, parallel_env

OWN = [name for name in environments if name != "pettingzoo"]


@pytest.mark.parametrize("name", OWN)
def test_every_environment_passes_the_parallel_api_test(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(parallel_env(name), num_cycles=60)


@pytest.mark.parametrize("name", OWN)
def test_every_environment_passes_the_parallel_seed_test(name: str) -> None:
    parallel_seed_test(lambda: parallel_env(name), num_cycles=60)


@pytest.mark.parametrize("name", OWN)
def test_every_environment_has_a_factory_with_its_own_defaults(name: str) -> None:
    face = getattr(parallel, f"{name}_v0")()
    environment = make_environment(name, copies=1)
    assert face.metadata["name"] == name
    assert face.possible_agents == [agent.name for agent in environment.agents]
    sizes = [face.observation_space(agent).shape[0] for agent in face.possible_agents]
    assert sizes == [agent.observation_size for agent in environment.agents]


def test_a_seeded_face_plays_the_episode_of_that_seed() -> None:
    face = cooperative_navigation_v0(agents=4, horizon=5)
    environment = make_environment("cooperative_navigation", agents=4, copies=1, horizon=5)
    seen, _ = face.reset(seed=11)
    np.testing.assert_array_equal(
        np.concatenate(list(seen.values())), environment.reset([11], [0])[0]
    )
    choices = np.array([0, 1, 3, 4])
    joint = np.eye(5, dtype=np.float32)[choices].reshape(1, -1)
    for t in range(5):
        actions = dict(zip(face.agents, choices, strict=True))
        seen, reward, terminated, truncated, _ = face.step(actions)
        step = environment.step(joint)
        np.testing.assert_array_equal(np.concatenate(list(seen.values())), step.observation[0])
        assert list(reward.values()) == step.reward[0].tolist()
        assert not any(terminated.values())
        assert set(truncated.values()) == {t == 4}
    assert face.agents == []


def test_unseeded_resets_give_other_episodes_in_the_same_order() -> None:
    def starts() -> list[bytes]:
        face = cooperative_navigation_v0()
        face.reset(seed=3)
        return [face.reset()[0]["agent_0"].tobytes() for _ in range(3)]

    assert starts() == starts()
    assert len(set(starts())) == 3


def test_a_face_shows_one_copy() -> None:
    with pytest.raises(ConfigError, match="one copy, not 2"):
        ParallelFace(make_environment("cooperative_navigation", copies=2), name="two")
