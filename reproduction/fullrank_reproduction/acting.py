"""Ways to act with trained policies besides the greedy one."""

from collections.abc import Sequence
from itertools import count

import numpy as np
from scipy.special import softmax

from fullrank.algorithms import Actor, Algorithm
from fullrank.algorithms.roles import RecurrentLayers
from fullrank.common.errors import ConfigError
from fullrank.common.types import BoolArray, FloatArray
from fullrank.environments import AgentSpec
from fullrank.training.evaluation import Act


def exploring(side: Algorithm) -> Act:
    """Exploring actions of a side that never dies, keyed by its seed and the call."""
    calls = count()

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        alive = np.ones((len(observation), len(side.problem.units)), dtype=bool)
        actions, _ = side.actor.act(
            observation, (), iteration=next(calls), step=0, alive=alive, available=available
        )
        return actions

    return act


def soft_actions(actor: Actor, agents: Sequence[AgentSpec]) -> Act:
    """Probabilities of the actions in place of the most probable one.

    Worlds that move an agent by a mixture of forces take them as they are.

    Raises:
        ConfigError: A policy is not a perceptron.
    """
    ends = np.cumsum([agent.observation_size for agent in agents])[:-1]
    policies = [_layers(actor, index) for index in range(len(agents))]

    def act(observation: FloatArray, available: BoolArray | None = None, /) -> FloatArray:
        seen = np.split(observation, ends, axis=1)
        pairs = zip(policies, seen, strict=True)
        return np.concatenate([softmax(_logits(*pair), axis=1) for pair in pairs], axis=1)

    return act


def _layers(actor: Actor, agent: int) -> tuple[FloatArray, ...]:
    layers = actor.policy(agent)
    if isinstance(layers, RecurrentLayers):
        raise ConfigError("soft actions need perceptrons as policies")
    return layers


def _logits(layers: tuple[FloatArray, ...], values: FloatArray) -> FloatArray:
    *hidden, last = layers
    for layer in hidden:
        values = np.maximum(values @ layer[:, :-1].T + layer[:, -1], 0.0)
    return values @ last[:, :-1].T + last[:, -1]
