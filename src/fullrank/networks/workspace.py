"""Preallocated buffers for the update of a few units of one cohort."""

import torch
from torch import Tensor

from fullrank.networks.clip import Clipper
from fullrank.networks.cohort import Cohort
from fullrank.networks.mlp import Mlp, Tape, Weights, make_tape


class Workspace:
    """Buffers whose first axis is the unit; they hold nothing between two uses.

    Attributes:
        critic: Tape of the critics.
        policy: Tape of the policies; shares all but its activations with ``critic``.
        own: Own observations and ones, shape (units, own + 1, columns).
        value: Q, shape (units, 1, columns).
        outputs: Of the policies, shape (units, action size, columns).
        draws: The same shape, on the CPU.
        critic_gradient: One per layer.
        policy_gradient: One per layer.
        gradient: Flat rows as the parameters', which ``clipper`` fills.
        clipper: From both layered gradients to ``gradient``.
    """

    def __init__(self, cohort: Cohort, *, units: int, columns: int, clip_norm: float) -> None:
        device = cohort.rows.online.device
        hidden, actions = cohort.critic.hidden, cohort.policy.outputs
        self.critic = make_tape(units, hidden, columns, device)
        activations = make_tape(units, hidden, columns, device)
        second, below = self.critic.second, self.critic.below
        self.policy = Tape(second, second, below, activations.h1, activations.h2)
        self.own = torch.empty(units, cohort.policy.inputs + 1, columns, device=device)
        self.value = torch.empty(units, 1, columns, device=device)
        self.outputs = torch.empty(units, actions, columns, device=device)
        self.draws = torch.empty(units, actions, columns)
        self.critic_gradient = _layers(cohort.critic, units, device)
        self.policy_gradient = _layers(cohort.policy, units, device)
        self.gradient = torch.zeros(units, cohort.rows.online.shape[1], device=device)
        self.clipper = Clipper(
            (*self.critic_gradient, *self.policy_gradient),
            (*cohort.critic.weights(self.gradient), *cohort.policy.weights(self.gradient)),
            norm=clip_norm,
        )

    def gather_own(self, joint: Tensor, index: Tensor) -> Tensor:
        """Own observations out of a joint input, by rows of shape (units, own + 1)."""
        flat = self.own.view(-1, self.own.shape[-1])
        torch.index_select(joint, 0, index.flatten(), out=flat)
        return self.own


def _layers(net: Mlp, units: int, device: torch.device) -> Weights:
    first, second, third = (
        torch.empty(units, layer.outputs, layer.inputs + 1, device=device) for layer in net.layers
    )
    return first, second, third
