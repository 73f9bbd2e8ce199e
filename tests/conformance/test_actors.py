"""Laws that the actor of every algorithm keeps: keyed, available and exported actions."""

import numpy as np
import pytest

from fullrank.environments import Continuous, Discrete
from fullrank.export.policy import Policy

from .algorithm_cases import build, cases, layout, plays_episodes, team


def test_actions_are_keyed_and_fit_their_specifications(name: str) -> None:
    algorithm, where = build(name), layout(name)
    generator = np.random.default_rng(0)
    shape = (4, sum(where.observation_sizes))
    observation = generator.standard_normal(shape, dtype=np.float32)
    alive = generator.random((4, len(team(name)))) < 0.7
    actor, memory = algorithm.actor, algorithm.actor.memory(4)
    action, _ = actor.act(observation, memory, iteration=3, step=2, alive=alive)
    again, _ = actor.act(observation, memory, iteration=3, step=2, alive=alive)
    other, _ = actor.act(observation, memory, iteration=3, step=3, alive=alive)
    greedy, _ = actor.act_greedily(observation, memory)
    assert np.array_equal(action, again)
    assert not np.array_equal(action, other)
    for agent, spec in enumerate(team(name)):
        own = action[:, where.action_of(agent)]
        assert not own[~alive[:, agent]].any()
        for taken in (
            own[alive[:, agent]],
            greedy[:, where.action_of(agent)],
        ):
            if isinstance(spec.action, Continuous):
                assert (taken >= spec.action.low).all()
                assert (taken <= spec.action.high).all()
            else:
                np.testing.assert_allclose(taken.sum(1), 1.0, atol=1e-6)
                assert spec.action.relaxed or set(np.unique(taken)) <= {0.0, 1.0}


def test_actions_that_are_not_available_are_never_taken(name: str) -> None:
    algorithm, where = build(name), layout(name)
    generator = np.random.default_rng(1)
    observation = generator.standard_normal((64, sum(where.observation_sizes)), dtype=np.float32)
    available = generator.random((64, sum(where.action_sizes))) < 0.5
    for agent in range(where.agents):
        available[:, where.action_of(agent).start] = True  # at least one action is available
    actor, alive = algorithm.actor, np.ones((64, where.agents), bool)
    explored, _ = actor.act(
        observation, actor.memory(64), iteration=0, step=0, alive=alive, available=available
    )
    greedy, _ = actor.act_greedily(observation, actor.memory(64), available=available)
    for agent, spec in enumerate(team(name)):
        own = where.action_of(agent)
        if isinstance(spec.action, Discrete):
            assert not explored[:, own][~available[:, own]].any()
            assert not greedy[:, own][~available[:, own]].any()


@pytest.mark.parametrize("name", cases(lambda name: not plays_episodes(name)))
def test_the_layers_of_a_perceptron_act_as_the_algorithm_does(name: str) -> None:
    algorithm = build(name)
    sizes = [spec.observation_size for spec in team(name)]
    joint = np.random.default_rng(3).standard_normal((200, sum(sizes)), dtype=np.float32)
    seen = np.split(joint, np.cumsum(sizes)[:-1], axis=1)
    greedy, _ = algorithm.actor.act_greedily(joint, algorithm.actor.memory(200))
    taken = np.split(greedy, np.cumsum(layout(name).action_sizes)[:-1], axis=1)
    for unit, spec in enumerate(team(name)):
        layers = algorithm.actor.policy(unit)
        assert isinstance(layers, tuple)
        outputs = Policy(agent=spec, layers=layers).outputs(seen[unit])
        if isinstance(spec.action, Discrete):
            assert (outputs.argmax(1) == taken[unit].argmax(1)).all()
        else:
            np.testing.assert_allclose(outputs, taken[unit], atol=1e-5)
