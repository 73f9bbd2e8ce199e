"""Preallocated buffers for the update of a few units of one cohort."""

from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.networks.cohort import Cohort
from fullrank.networks.mlp import Mlp, Tape, Weights, make_tape


class Workspace(NamedTuple):
    """Buffers whose first axis is the unit; they hold nothing between two uses.

    Attributes:
        critic: Tape of the critics.
        policy: Tape of the policies; shares all but its activations with ``critic``.
        value: Q, shape (units, 1, columns).
        outputs: Of the policies, shape (units, action size, columns).
        draws: The same shape, on the CPU.
        critic_gradient: One per layer.
        policy_gradient: One per layer.
        gradient: Flat rows as the parameters', clipped.
    """

    critic: Tape
    policy: Tape
    value: Tensor
    outputs: Tensor
    draws: Tensor
    critic_gradient: Weights
    policy_gradient: Weights
    gradient: Tensor

    def narrow(self, units: int) -> "Workspace":
        """The part for the first ``units``."""
        return Workspace(
            self.critic.narrow(units),
            self.policy.narrow(units),
            self.value[:units],
            self.outputs[:units],
            self.draws[:units],
            _narrow(self.critic_gradient, units),
            _narrow(self.policy_gradient, units),
            self.gradient[:units],
        )


def make_workspace(cohort: Cohort, units: int, columns: int) -> Workspace:
    """Buffers for at most so many units."""
    device = cohort.rows.online.device
    hidden, actions = cohort.critic.hidden, cohort.policy.outputs
    critic = make_tape(units, hidden, columns, device)
    activations = make_tape(units, hidden, columns, device)
    return Workspace(
        critic,
        Tape(critic.second, critic.second, critic.below, activations.h1, activations.h2),
        torch.empty(units, 1, columns, device=device),
        torch.empty(units, actions, columns, device=device),
        torch.empty(units, actions, columns),
        _layers(cohort.critic, units, device),
        _layers(cohort.policy, units, device),
        torch.zeros(units, cohort.rows.online.shape[1], device=device),
    )


def _layers(net: Mlp, units: int, device: torch.device) -> Weights:
    first, second, third = (
        torch.empty(units, layer.outputs, layer.inputs + 1, device=device) for layer in net.layers
    )
    return first, second, third


def _narrow(weights: Weights, units: int) -> Weights:
    return weights[0][:units], weights[1][:units], weights[2][:units]
