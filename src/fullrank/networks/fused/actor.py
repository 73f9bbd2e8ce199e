"""Perceptron policies of all agents, evaluated together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fullrank.common.types import BoolArray, FloatArray
from fullrank.networks.actor import Choose, MemorylessActor
from fullrank.networks.fused.gather_index import GatherIndex
from fullrank.networks.fused.kernels import Kernel
from fullrank.networks.fused.mlp import Activations, Weights, forward
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.replay.layout import Layout


class _Policies(NamedTuple):
    """Policies of a group; views of their parameters and indices are made once."""

    group: NetworkGroup
    weights: Weights
    observations: GatherIndex
    """Rows of the agents' observations in a joint one."""
    actions: GatherIndex
    """Rows of the agents' actions in a joint one."""

    @classmethod
    def of(cls, group: NetworkGroup, layout: Layout) -> "_Policies":
        """Place the agents of a group."""
        device = group.rows.online.device
        observations = group.whole_index.flatten().tolist()
        actions = (group.action_index - layout.action.start).flatten().tolist()
        return cls(
            group,
            group.policy.weights(group.rows.online),
            GatherIndex(observations, device),
            GatherIndex(actions, device),
        )

    def outputs(self, seen: Tensor) -> Tensor:
        """Compute the outputs, shape (agents, action size, copies), from a joint observation."""
        policy, agents, copies = self.group.policy, len(self.group.agents), seen.shape[1]
        own = self.observations.of(seen).contiguous().view(agents, -1, copies)
        below = own.new_empty(agents, policy.hidden, copies)
        outputs = own.new_empty(agents, policy.outputs, copies)
        return forward(self.weights, own, Activations(below, below), outputs)


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
        self._policies = [_Policies.of(group, layout) for group in groups]

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
            for policies in self._policies:
                head, outputs = policies.group.head, policies.outputs(seen)
                if available is not None:
                    outputs = head.mask(outputs, policies.actions.of(allowed).view_as(outputs))
                policies.actions.put(joint, choose(head, outputs).flatten(0, 1))
            return np.ascontiguousarray(joint.t().cpu().numpy())

    def policy(self, agent: int) -> tuple[FloatArray, ...]:
        """Return the agent's policy, layer by layer; see ``Actor.policy``."""
        for group in self._groups:
            if agent in group.agents:
                return group.policy_layers(group.agents.index(agent))
        raise IndexError(f"there is no agent {agent}")
