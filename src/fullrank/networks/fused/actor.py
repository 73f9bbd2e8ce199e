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
        layout: Layout of joint actions.
        kernel: Kernel of the matrix products.
        seed: Keys the exploration.
    """

    def __init__(
        self, groups: Sequence[NetworkGroup], layout: Layout, *, kernel: Kernel, seed: int
    ) -> None:
        super().__init__(layout.action_sizes, seed=seed)
        self._groups, self._kernel = groups, kernel
        acting = (group.action_index - layout.action.start for group in groups)
        self._action_rows = [rows.flatten() for rows in acting]

    def _act(
        self, observation: FloatArray, available: BoolArray | None, choose: Choose
    ) -> FloatArray:
        with self._kernel.active():
            copies = len(observation)
            device = self._groups[0].rows.online.device
            seen = torch.from_numpy(np.require(observation, requirements="W")).to(device).t()
            joint = torch.empty(sum(self._action_sizes), copies, device=device)
            if available is not None:
                allowed = torch.from_numpy(available).to(device).t()
            for group, rows in zip(self._groups, self._action_rows, strict=True):
                outputs = self._outputs(group, seen)
                if available is not None:
                    outputs = group.head.mask(outputs, allowed[rows].view_as(outputs))
                actions = choose(group.head, outputs)
                joint.index_copy_(0, rows, actions.flatten(0, 1))
            return np.ascontiguousarray(joint.t().cpu().numpy())

    def _outputs(self, group: NetworkGroup, seen: Tensor) -> Tensor:
        """Compute the outputs of a group's policies, shape (agents, action size, copies)."""
        agents, copies = len(group.agents), seen.shape[1]
        own = seen.index_select(0, group.whole_index.flatten()).view(agents, -1, copies)
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
