"""Perceptron policies of all agents, evaluated together."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fullrank.common.seeding import stream
from fullrank.common.types import BoolArray, FloatArray
from fullrank.networks.fused.kernels import Kernel
from fullrank.networks.fused.mlp import Activations, forward
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.heads import Head
from fullrank.replay.layout import Layout


class FusedActor:
    """Perceptron policies as an ``Actor``, without memory.

    Args:
        groups: All agents, with the current parameters.
        layout: Layout of joint observations and actions.
        kernel: Kernel of the matrix products.
        seed: Keys the exploration.
    """

    def __init__(
        self, groups: Sequence[NetworkGroup], layout: Layout, *, kernel: Kernel, seed: int
    ) -> None:
        self._groups, self._layout = groups, layout
        self._kernel, self._seed = kernel, seed

    def memory(self, copies: int) -> tuple[()]:
        """Return the empty memory."""
        return ()

    def act(
        self,
        observation: FloatArray,
        memory: tuple[FloatArray, ...],
        *,
        iteration: int,
        step: int,
        alive: BoolArray,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """Return exploring joint actions; see ``Actor.act``."""
        generator = stream(self._seed, "act", iteration, step)
        actions = self._act(
            observation, available, lambda head, outputs: head.explore(outputs, generator)
        )
        return actions * np.repeat(alive, self._layout.action_sizes, axis=1), memory

    def act_greedily(
        self,
        observation: FloatArray,
        memory: tuple[FloatArray, ...],
        *,
        available: BoolArray | None = None,
    ) -> tuple[FloatArray, tuple[FloatArray, ...]]:
        """Return the likeliest actions as one-hot, or the means."""
        return self._act(observation, available, lambda head, outputs: head.mode(outputs)), memory

    def _act(
        self,
        observation: FloatArray,
        available: BoolArray | None,
        choose: Callable[[Head, Tensor], Tensor],
    ) -> FloatArray:
        with self._kernel.active():
            copies = len(observation)
            device = self._groups[0].rows.online.device
            joint = torch.empty(self._layout.action.stop, copies, device=device)
            seen = torch.from_numpy(np.require(observation, requirements="W"))
            joint[: self._layout.action.start] = seen.t()
            if available is not None:
                allowed = torch.from_numpy(available).to(device).t()
            for group in self._groups:
                outputs = self._outputs(group, joint)
                if available is not None:
                    mask = allowed[group.action_index - self._layout.action.start]
                    outputs = group.head.mask(outputs, mask)
                actions = choose(group.head, outputs)
                joint.index_copy_(0, group.action_index.flatten(), actions.flatten(0, 1))
            return np.ascontiguousarray(joint[self._layout.action].t().cpu().numpy())

    def _outputs(self, group: NetworkGroup, joint: Tensor) -> Tensor:
        """Compute the outputs of a group's policies, shape (agents, action size, copies)."""
        agents, copies = len(group.agents), joint.shape[1]
        own = joint.index_select(0, group.observation_index.flatten()).view(agents, -1, copies)
        below = own.new_empty(agents, group.policy.hidden, copies)
        outputs = own.new_empty(agents, group.policy.outputs, copies)
        policy = group.policy.weights(group.rows.online)
        return forward(policy, own, Activations(below, below), outputs)

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        """Return the agent's policy, layer by layer; see ``Actor.policy``."""
        for group in self._groups:
            if agent in group.agents:
                return group.policy_layers(group.agents.index(agent))
        raise IndexError(f"there is no agent {agent}")
