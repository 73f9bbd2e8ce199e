"""Laws that every registered environment keeps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.registries import shipped

from fullrank.common.errors import ConfigError
from fullrank.environments import Environment, environments, make_environment
from fullrank.environments.base import Step
from fullrank.training.evaluation import random_actions

PARAMS: dict[str, dict[str, Any]] = {
    "pettingzoo": {
        "factory": "fullrank.environments.parallel:cooperative_navigation_v0",
        "arguments": {"agents": 4, "horizon": 7},
    }
}
STEPS = 60

Array = np.ndarray[Any, Any]
Make = Callable[[int], Environment]


@pytest.fixture(params=shipped(environments))
def make(request: pytest.FixtureRequest) -> Make:
    name: str = request.param
    return lambda copies: make_environment(name, copies=copies, **PARAMS.get(name, {}))


def play(environment: Environment, seed: int, steps: int = STEPS) -> list[Step]:
    """Random play; ended copies restart from seeds that depend on the step and the copy."""
    act = random_actions(environment.agents, seed=seed)
    everybody = list(range(environment.copies))
    observation = environment.reset([seed * 1000 + copy for copy in everybody], everybody)
    trace = []
    for t in range(steps):
        trace.append(environment.step(act(observation)))
        ended = np.flatnonzero(trace[-1].ended).tolist()
        observation = environment.reset([seed * 1000 + 10 * t + copy for copy in ended], ended)
    return trace


def parts(step: Step) -> list[Array]:
    return list(step)


def kind(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)


def test_arrays_have_the_promised_shapes_and_types(make: Make) -> None:
    environment = make(3)
    agents = len(environment.agents)
    size = sum(agent.observation_size for agent in environment.agents)
    assert environment.copies == 3
    first = environment.reset([1, 2, 3], [0, 1, 2])
    assert kind(first) == ((3, size), "float32")
    for step in play(environment, seed=1):
        assert kind(step.observation) == ((3, size), "float32")
        assert kind(step.reward) == ((3, agents), "float64")
        assert kind(step.terminated) == kind(step.alive) == ((3, agents), "bool")
        assert kind(step.ended) == ((3,), "bool")
        assert np.isfinite(step.observation).all()
        assert np.isfinite(step.reward).all()
        assert not (step.terminated & step.alive & ~step.ended[:, None]).any()


def test_agent_names_are_unique(make: Make) -> None:
    names = [agent.name for agent in make(1).agents]
    assert len(set(names)) == len(names)


def test_equal_seeds_give_equal_episodes(make: Make) -> None:
    one, other = play(make(2), seed=1), play(make(2), seed=1)
    for step, again in zip(one, other, strict=True):
        for a, b in zip(parts(step), parts(again), strict=True):
            np.testing.assert_array_equal(a, b)


def test_other_seeds_give_other_episodes(make: Make) -> None:
    one, other = make(1).reset([1], [0]), make(1).reset([2], [0])
    assert not np.array_equal(one, other)


def test_every_episode_ends(make: Make) -> None:
    environment = make(2)
    ended = np.stack([step.ended for step in play(environment, seed=2, steps=200)])
    assert ended.any(axis=0).all()


def test_a_reset_leaves_the_other_copies_as_they_are(make: Make) -> None:
    environment = make(3)
    act = random_actions(environment.agents, seed=0)
    observation = environment.reset([1, 2, 3], [0, 1, 2])
    after = environment.step(act(observation)).observation.copy()
    reset = environment.reset([9], [1])
    np.testing.assert_array_equal(reset[[0, 2]], after[[0, 2]])
    np.testing.assert_array_equal(reset[1], make(1).reset([9], [0])[0])
    assert not np.array_equal(reset[1], after[1])


def test_a_step_overwrites_nothing_that_was_returned_before(make: Make) -> None:
    environment = make(2)
    act = random_actions(environment.agents, seed=0)
    first = environment.reset([1, 2], [0, 1])
    step = environment.step(act(first))
    kept = [part.copy() for part in [first, *parts(step)]]
    environment.step(act(step.observation))
    environment.reset([3], [0])
    for before, after in zip(kept, [first, *parts(step)], strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_copy_plays_as_if_it_were_alone(make: Make) -> None:
    together, alone = make(4), make(1)
    act = random_actions(together.agents, seed=3)
    observation = together.reset([5, 6, 7, 8], [0, 1, 2, 3])
    np.testing.assert_array_equal(alone.reset([7], [0])[0], observation[2])
    for _ in range(STEPS):
        action = act(observation)
        step, single = together.step(action), alone.step(action[2:3])
        observation = step.observation
        for many, one in zip(parts(step), parts(single), strict=True):
            np.testing.assert_array_equal(many[2], one[0])
        if step.ended.any():
            return
    pytest.fail("no episode ended")


def test_a_negative_number_of_agents_is_a_configuration_error() -> None:
    for name in shipped(environments):
        with pytest.raises(ConfigError):
            make_environment(name, agents=-1, copies=1, **PARAMS.get(name, {}))
