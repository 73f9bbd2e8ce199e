"""The library's environments pass PettingZoo's own tests, and agree with the arrays."""

import warnings
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test
from pettingzoo.utils import BaseParallelWrapper

from fullrank.environments import environments, make_environment
from fullrank.environments.capabilities import Masked, state_of
from fullrank.environments.parallel import parallel_env
from fullrank.training.evaluation import random_actions

OWN = [
    name
    for name in environments
    if environments.get(name).__module__.startswith("fullrank.")
    and name not in ("pettingzoo", "gymnasium")
]


class Permitted(BaseParallelWrapper):  # type: ignore[misc]
    """Replaces actions that are not available, since PettingZoo's tests read no masks in infos."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        observations, self._infos = self.env.reset(seed=seed, options=options)
        self.agents = self.env.agents
        return observations, self._infos

    def step(self, actions: dict[str, Any]) -> Any:
        masks = {agent: info.get("action_mask") for agent, info in self._infos.items()}
        permitted = {
            agent: action if masks[agent] is None or masks[agent][action] else masks[agent].argmax()
            for agent, action in actions.items()
        }
        *result, self._infos = self.env.step(permitted)
        self.agents = self.env.agents
        return *result, self._infos


@pytest.mark.parametrize("name", OWN)
def test_every_environment_passes_the_parallel_api_test(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(Permitted(parallel_env(name)), num_cycles=60)


@pytest.mark.parametrize("name", OWN)
def test_every_environment_passes_the_parallel_seed_test(name: str) -> None:
    parallel_seed_test(lambda: Permitted(parallel_env(name)), num_cycles=60)


def test_a_seeded_face_plays_the_episode_of_that_seed() -> None:
    face = parallel_env("cooperative_navigation", agents=4, horizon=5)
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


def test_a_face_shows_masks_and_state_as_the_adapter_reads_them() -> None:
    plain = make_environment("switch_riddle", copies=2)
    factory = "fullrank.environments.parallel:parallel_env"
    named = {"name": "switch_riddle"}
    adapted = make_environment("pettingzoo", copies=2, factory=factory, arguments=named)
    assert isinstance(plain, Masked)
    assert isinstance(adapted, Masked)
    act = random_actions(plain.agents, seed=0)
    observation = plain.reset([1, 2], [0, 1])
    np.testing.assert_array_equal(adapted.reset([1, 2], [0, 1]), observation)
    ended = np.zeros(2, dtype=bool)
    while not ended.any():
        np.testing.assert_array_equal(adapted.available(), plain.available())
        np.testing.assert_array_equal(state_of(adapted, observation), state_of(plain, observation))
        action = act(observation, plain.available())
        observation, ended = plain.step(action).observation, adapted.step(action).ended
