"""Perceptron policies of all agents, evaluated together."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fullrank.common.types import BoolArray, FloatArray
from fullrank.networks.actor import Choose, MemorylessActor
from fullrank.networks.fused.kernels import Kernel
from fullrank.networks.fused.mlp import Activations, forward
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.replay.layout import Layout


class FusedActor(MemorylessActor):
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
        super().__init__(layout.action_sizes, seed=seed)
        self._groups, self._layout, self._kernel = groups, layout, kernel

    def _act(
        self, observation: FloatArray, available: BoolArray | None, choose: Choose
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
