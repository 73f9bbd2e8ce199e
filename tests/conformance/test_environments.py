"""Laws that every registered environment keeps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.registries import shipped

from fullrank.common.errors import ConfigError, EnvironmentFailed
from fullrank.environments import Discrete, Environment, Step, environments, make_environment
from fullrank.environments.capabilities import (
    Contested,
    available_of,
    shares_reward,
    state_of,
    state_size,
)
from fullrank.training.evaluation import random_actions

WRAPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "pettingzoo": (
        "pettingzoo",
        {
            "factory": "fullrank.environments.parallel:parallel_env",
            "arguments": {"name": "cooperative_navigation", "agents": 4, "horizon": 7},
        },
    ),
    "lbforaging": ("gymnasium", {"id": "lbforaging:Foraging-5x5-2p-1f-coop-v3"}),
    "rware": ("gymnasium", {"id": "rware:rware-tiny-2ag-v2", "arguments": {"max_steps": 40}}),
}
"""Name and parameters of foreign environments."""
CASES = {
    name: (name, dict[str, Any]())
    for name in shipped(environments)
    if name not in ("pettingzoo", "gymnasium")
} | WRAPPED
UNSEEDED = {"matrix_game", "two_step_game"}
"""Environments in which nothing is random."""
STEPS = 60

Make = Callable[[int], Environment]


def made(case: str, copies: int, *, agents: int = 0) -> Environment:
    """The environment of a case; skips the test where its package is not installed."""
    name, params = CASES[case]
    if name == "gymnasium":
        pytest.importorskip(case, reason=f"needs the package {case}")
    return make_environment(name, agents=agents, copies=copies, **params)


@pytest.fixture(params=sorted(CASES))
def make(request: pytest.FixtureRequest) -> Make:
    return partial(made, request.param)


class Random:
    """The random policy among the actions that are available now."""

    def __init__(self, environment: Environment, seed: int) -> None:
        self._environment = environment
        self._act = random_actions(environment.agents, seed=seed)

    def __call__(self, observation: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._act(observation, available_of(self._environment))


def parts(step: Step) -> list[np.ndarray[Any, Any]]:
    return list(step)


def kind(array: np.ndarray[Any, Any]) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)


def test_what_a_step_returns_keeps_every_promise(make: Make) -> None:
    environment = make(3)
    agents, everybody = environment.agents, [0, 1, 2]
    size = sum(agent.observation_size for agent in agents)
    assert environment.copies == 3
    assert len({agent.name for agent in agents}) == len(agents)
    zero, start = list[int](), 0
    for agent in agents:
        zero += [start + entry for entry in agent.always_zero]
        start += agent.observation_size
    act, observation = Random(environment, 2), environment.reset([1, 2, 3], everybody)
    over = np.zeros(3, bool)
    for t in range(200):
        assert kind(observation) == ((3, size), "float32")
        assert not observation[:, zero].any()
        step = environment.step(act(observation))
        assert kind(step.observation) == ((3, size), "float32")
        assert not step.observation[:, zero].any()
        assert kind(step.reward) == ((3, len(agents)), "float64")
        assert kind(step.terminated) == kind(step.alive) == ((3, len(agents)), "bool")
        assert kind(step.ended) == ((3,), "bool")
        assert np.isfinite(step.observation).all()
        assert np.isfinite(step.reward).all()
        assert not (step.terminated & step.alive & ~step.ended[:, None]).any()
        if isinstance(environment, Contested):
            assert kind(won := environment.won()) == ((3,), "bool")
            assert not (won & ~step.ended).any(), "only an episode that ended is won"
        if shares_reward(environment):
            assert (step.reward == step.reward[:, :1]).all()
        ended = np.flatnonzero(step.ended).tolist()
        over |= step.ended
        observation = environment.reset([10 * t + copy for copy in ended], ended)
    assert over.all(), "every episode ends"


def test_an_episode_is_the_same_whatever_was_played_before(make: Make) -> None:
    """So that a resumed run, and one that plays block by block, have the uninterrupted one's."""

    def episode(environment: Environment, seed: int) -> list[np.ndarray[Any, Any]]:
        act = Random(environment, seed)
        seen = [environment.reset([seed], [0])]
        for _ in range(STEPS if seed % 20 == 0 else 2):
            step = environment.step(act(seen[-1]))
            seen += [*parts(step)[1:], step.observation]
            if step.ended[0]:
                break
        return seen

    one, other, seeds = make(1), make(1), range(30)
    forwards = {seed: episode(one, seed) for seed in seeds}
    backwards = {seed: episode(other, seed) for seed in reversed(seeds)}
    for seed in seeds:
        for a, b in zip(forwards[seed], backwards[seed], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("case", sorted(CASES.keys() - UNSEEDED))
def test_other_seeds_give_other_episodes(case: str) -> None:
    environment = made(case, 20)
    starts = environment.reset(range(20), range(20))
    assert len(np.unique(starts, axis=0)) > 1


def test_a_reset_leaves_the_other_copies_as_they_are(make: Make) -> None:
    environment = make(3)
    act = Random(environment, 0)
    observation = environment.reset([1, 2, 3], [0, 1, 2])
    after = environment.step(act(observation)).observation.copy()
    state = state_of(environment, after)[1].copy()
    reset = environment.reset([9], [1])
    np.testing.assert_array_equal(reset[[0, 2]], after[[0, 2]])
    np.testing.assert_array_equal(reset[1], make(1).reset([9], [0])[0])
    assert not np.array_equal(state_of(environment, reset)[1], state)


def test_a_step_overwrites_nothing_that_was_returned_before(make: Make) -> None:
    environment = make(2)
    act = Random(environment, 0)
    first = environment.reset([1, 2], [0, 1])
    step = environment.step(act(first))
    kept = [part.copy() for part in [first, *parts(step)]]
    environment.step(act(step.observation))
    environment.reset([3], [0])
    for before, after in zip(kept, [first, *parts(step)], strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_copy_plays_as_if_it_were_alone_and_states_are_of_the_present(make: Make) -> None:
    together, again, alone = make(4), make(4), make(1)
    act = Random(together, 3)
    agents, observation = together.agents, together.reset([5, 6, 7, 8], [0, 1, 2, 3])
    assert again.reset([5, 6, 7, 8], [0, 1, 2, 3]).shape == observation.shape
    single = alone.reset([7], [0])
    owner = np.repeat(np.arange(len(agents)), [agent.action.size for agent in agents])
    alive, ended = np.ones((4, len(agents)), dtype=bool), False
    for _ in range(STEPS):
        state, available = state_of(together, observation), available_of(together)
        assert kind(state) == ((4, state_size(together)), "float32")
        assert kind(available) == ((4, len(owner)), "bool")
        choices = np.stack([available[:, owner == i].sum(axis=1) for i in range(len(agents))], 1)
        assert (choices >= 1).all()
        discrete = np.array([isinstance(agent.action, Discrete) for agent in agents])
        assert (choices[~alive & discrete & ~np.array(ended)] == 1).all()
        np.testing.assert_array_equal(state_of(again, observation), state)
        np.testing.assert_array_equal(available_of(again), available)
        np.testing.assert_array_equal(state_of(alone, single)[0], state[2])
        np.testing.assert_array_equal(available_of(alone)[0], available[2])
        action = act(observation)
        step = together.step(action)
        observation, alive, ended = step.observation, step.alive, bool(step.ended.any())
        again.step(action)
        single_step = alone.step(action[2:3])
        single = single_step.observation
        for many, one in zip(parts(step), parts(single_step), strict=True):
            np.testing.assert_array_equal(many[2], one[0])
        if ended:
            return
    pytest.fail("no episode ended")


def test_an_unavailable_action_is_refused_unless_actions_are_relaxed(make: Make) -> None:
    environment = make(1)
    act = Random(environment, 0)
    observation = environment.reset([1], [0])
    for _ in range(STEPS):
        available, start = available_of(environment), 0
        for agent in environment.agents:
            part = slice(start, start + agent.action.size)
            start = part.stop
            relaxed = not isinstance(agent.action, Discrete) or agent.action.relaxed
            if not relaxed and not available[0, part].all():
                action = act(observation)
                action[0, part] = np.eye(agent.action.size)[available[0, part].argmin()]
                with pytest.raises(EnvironmentFailed, match=f"{agent.name} of copy 0 chose"):
                    environment.step(action)
                return
        step = environment.step(act(observation))
        observation = step.observation
        if step.ended[0]:
            return


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_negative_number_of_agents_is_a_configuration_error(case: str) -> None:
    with pytest.raises(ConfigError):
        made(case, 1, agents=-1)
