"""Actor of value-based teams: epsilon-greedy by a recurrent network of action values."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fullrank.algorithms.groups import Networks
from fullrank.algorithms.roles import Memory, RecurrentLayers
from fullrank.algorithms.trajectories import by_agent
from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray, IntArray
from fullrank.networks.fused import kernels
from fullrank.networks.value_networks import GroupedAgents
from fullrank.replay.episodes import EpisodeLayout

if TYPE_CHECKING:
    from fullrank.algorithms.values import ValueLearner


class ValueActor:
    """Role ``agent`` as an ``Actor``; memory is the recurrent state and the last action.

    Args:
        learner: Inputs of the network, and the schedule of the exploration.
        nets: Networks with the current parameters.
        layout: Sizes of observations and actions.
        seed: Keys the exploration.
    """

    def __init__(
        self, learner: "ValueLearner", nets: Networks, layout: EpisodeLayout, *, seed: int
    ) -> None:
        self._learner, self._network, self._layout = learner, nets.agent[0], layout
        self._seed, self._epsilon = seed, learner.exploration(0)
        self._device = next(self._network.parameters()).device
        self._exists = by_agent(
            np.ones((1, sum(layout.action_sizes)), np.float32), layout.action_sizes
        ).astype(bool)

    def anneal(self, env_steps: int) -> float:
        """Set and return epsilon for a collection before which ``env_steps`` steps were played."""
        self._epsilon = self._learner.exploration(env_steps)
        return self._epsilon

    def memory(self, copies: int) -> Memory:
        """Return zeros: recurrent state (E, n, hidden) and last action (E, n, A)."""
        agents, actions = self._layout.agents, max(self._layout.action_sizes)
        return (
            np.zeros((copies, agents, self._learner.hidden), np.float32),
            np.zeros((copies, agents, actions), np.float32),
        )

    def act(
        self,
        observation: FloatArray,
        memory: Memory,
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, Memory]:
        """Return the best actions, or random available ones with probability epsilon.

        Draws are keyed by (seed, "act", iteration, step); see ``Actor.act``.
        """
        allowed = self._allowed(observation, available)
        if available is None:
            allowed = allowed & alive[..., None]
        values, state = self._values(observation, memory)
        generator = stream(self._seed, "act", iteration + 1, step)
        drawn = generator.random((2, *alive.shape))
        choice = np.where(
            drawn[0] < self._epsilon, random_choice(allowed, drawn[1]), best(values, allowed)
        )
        action = one_hot(choice, allowed)
        return self._joint(action * alive[..., None]), (state, action)

    def act_greedily(
        self, observation: FloatArray, memory: Memory, *, available: BoolArray | None = None
    ) -> tuple[FloatArray, Memory]:
        """Return the best available actions as one-hot."""
        allowed = self._allowed(observation, available)
        values, state = self._values(observation, memory)
        action = one_hot(best(values, allowed), allowed)
        return self._joint(action), (state, action)

    def _allowed(self, observation: FloatArray, available: BoolArray | None) -> BoolArray:
        if available is None:
            return np.repeat(self._exists, len(observation), axis=0)
        sizes = self._layout.action_sizes
        return by_agent(available.astype(np.float32), sizes).astype(bool)

    def _values(self, observation: FloatArray, memory: Memory) -> tuple[FloatArray, FloatArray]:
        """Compute the values of all actions, shape (E, n, A), and the new recurrent state."""
        state, last_action = memory
        copies, agents, _ = state.shape
        parts = [by_agent(observation, self._layout.observation_sizes)]
        if self._learner.last_action:
            parts.append(last_action)
        if self._learner.identity:
            identity = np.eye(agents, dtype=np.float32)
            parts.append(np.broadcast_to(identity, (copies, agents, agents)))
        inputs = np.concatenate(parts, axis=2).reshape(1, copies * agents, -1)
        with kernels.DEFAULT.active():
            values, after = self._network(
                torch.from_numpy(inputs).to(self._device),
                torch.from_numpy(state.reshape(copies * agents, -1)).to(self._device),
            )
        return (
            values[0].cpu().numpy().reshape(copies, agents, -1),
            after.cpu().numpy().reshape(state.shape),
        )

    def _joint(self, action: FloatArray) -> FloatArray:
        """Pack actions by agent into joint actions, shape (E, sum of action sizes)."""
        sizes = self._layout.action_sizes
        return np.concatenate([action[:, agent, :size] for agent, size in enumerate(sizes)], axis=1)

    def policy(self, agent: int) -> RecurrentLayers:
        """Return the agent's part of its network; see ``Actor.policy``."""
        layout, network = self._layout, self._network
        if isinstance(network, GroupedAgents):
            network = network.of(agent)
        first, middle, last = ([*part.parameters()] for part in network.children())
        weight, bias = first[0].data, first[1].data
        own, start = [*range(layout.observation_sizes[agent])], max(layout.observation_sizes)
        if self._learner.last_action:
            own += range(start, start + layout.action_sizes[agent])
            start += max(layout.action_sizes)
        if self._learner.identity:
            bias = bias + weight[:, start + agent]
        choices, recurrent = slice(layout.action_sizes[agent]), len(middle) > 2
        return RecurrentLayers(
            first=_joined(weight[:, own], bias),
            input_gates=_joined(*(middle[::2] if recurrent else middle)),
            state_gates=_joined(*middle[1::2]) if recurrent else None,
            last=_joined(last[0][choices], last[1][choices]),
            last_action=self._learner.last_action,
        )


def _joined(weight: Tensor, bias: Tensor) -> FloatArray:
    """Return [W | b]."""
    matrix: FloatArray = torch.cat([weight, bias[:, None]], 1).detach().cpu().numpy()
    return matrix


def best(values: FloatArray, allowed: BoolArray) -> IntArray:
    """Return the first allowed action of highest value, shape (E, n)."""
    chosen: IntArray = np.where(allowed, values, -np.inf).argmax(axis=2)
    return chosen


def random_choice(allowed: BoolArray, uniform: NDArray[np.float64]) -> IntArray:
    """Choose an allowed action by a uniform number in [0, 1), shape (E, n)."""
    rank = (uniform * allowed.sum(axis=2)).astype(np.int64)
    chosen: IntArray = (np.cumsum(allowed, axis=2) > rank[..., None]).argmax(axis=2)
    return chosen


def one_hot(choice: IntArray, allowed: BoolArray) -> FloatArray:
    """Return choices as one-hot vectors, zero where nothing is allowed, shape (E, n, A)."""
    action = np.zeros(allowed.shape, np.float32)
    np.put_along_axis(action, choice[..., None], 1.0, axis=2)
    action *= allowed
    return action
