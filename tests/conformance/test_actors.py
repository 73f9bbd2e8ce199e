"""The layers of actors that are perceptrons."""

import numpy as np
import pytest

from fullrank.environments import Continuous
from fullrank.export.policy import Policy

from .algorithm_cases import build, cases, layout, plays_episodes, team


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
        if isinstance(spec.action, Continuous):
            np.testing.assert_allclose(outputs, taken[unit], atol=1e-5)
            continue
        cuts = np.cumsum(spec.action.choices[:-1])
        for values, chosen in zip(
            *(np.split(each, cuts, axis=1) for each in (outputs, taken[unit])), strict=True
        ):
            assert (values.argmax(1) == chosen.argmax(1)).all()
