"""An agent's part of a team's network of action values, as plain arrays.

fc - ReLU - GRU - fc; without a recurrent state fc - ReLU - fc - ReLU - fc.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fullrank.algorithms.roles import RecurrentLayers
from fullrank.common.types import FloatArray, IntArray
from fullrank.environments.base import AgentSpec

NOTHING_YET = -1
"""Last action in the first step of an episode, where the recurrent state is zero."""

PlayStep: TypeAlias = Callable[[FloatArray, IntArray, FloatArray], tuple[FloatArray, FloatArray]]
"""Observations, last actions and recurrent states to values and states, as of
``RecurrentPolicy.step``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecurrentPolicy:
    """An agent's policy with a recurrent state of H entries."""

    agent: AgentSpec
    layers: RecurrentLayers

    @property
    def hidden(self) -> int:
        """Return H; the state of a policy without memory is not used."""
        return len(self.layers.first)

    def step(
        self, observation: FloatArray, last_action: IntArray, state: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the values of all actions, shape (B, actions), and the new states.

        Args:
            observation: As the environment returns it, shape (B, observation size) float32.
            last_action: Index of the last action, or ``NOTHING_YET``, shape (B,).
            state: Recurrent states before the step, shape (B, H).
        """
        layers, inputs = self.layers, observation
        if layers.last_action:
            taken = last_action[:, None] == np.arange(self.agent.action.size)
            inputs = np.concatenate([observation, taken.astype(np.float32)], axis=1)
        from_input = _affine(layers.input_gates, np.maximum(_affine(layers.first, inputs), 0.0))
        if layers.state_gates is None:
            return _affine(layers.last, np.maximum(from_input, 0.0)), state
        reset, update, new = np.split(from_input, 3, axis=1)
        of_state = np.split(_affine(layers.state_gates, state), 3, axis=1)
        keep = _sigmoid(update + of_state[1])
        candidate = np.tanh(new + _sigmoid(reset + of_state[0]) * of_state[2])
        after = candidate + keep * (state - candidate)
        return _affine(layers.last, after), after


def _affine(layer: FloatArray, signal: FloatArray) -> FloatArray:
    outputs: FloatArray = signal @ layer[:, :-1].T + layer[:, -1]
    return outputs


def _sigmoid(signal: FloatArray) -> FloatArray:
    half = np.float32(0.5)
    gate: FloatArray = half * np.tanh(half * signal) + half
    return gate
