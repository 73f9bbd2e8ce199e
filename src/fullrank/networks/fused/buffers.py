"""Preallocated buffers for the update of several units of one group."""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.networks.fused.clip import Clipper
from fullrank.networks.fused.critic_input import CriticInput
from fullrank.networks.fused.mlp import Activations, Linear, parts
from fullrank.networks.fused.network_group import NetworkGroup


class Passes(NamedTuple):
    """Results of the passes of a policy gradient.

    Attributes:
        first: Pre-activation of the critics' first layer, shape (units, hidden, columns).
        critic: Activations of the critics.
        policy: Activations of the policies; shares ``second`` and ``below`` with ``critic``.
    """

    first: Tensor
    critic: Activations
    policy: Activations


class Buffers:
    """Buffers whose first axis is the unit; their contents are not kept between uses.

    Attributes:
        passes: Results of passes.
        value: Q, shape (units, 1, columns).
        outputs: Outputs of the policies, shape (units, action size, columns).
        action_weights: Columns of the critics' first layer that multiply the own action.
        affine_gradient: Gradient at [W | b] of the critics' first layer as it is multiplied.
        folded: The same gradient in the shape of the critics' parameters.
        critic_gradient: Gradients at layers 2 and 3 of the critics.
        policy_gradient: Gradient at each layer of the policies, the first as it is multiplied.
        folded_policy: Gradient at W of the policies' first layer in the shape of the parameters.
        bias_gradient: Gradient at all biases outside ``affine_gradient``, shape (units, biases).
        gradient: Flat rows in the parameters' order, which ``clipper`` fills.
        clipper: Clips the gradients of all layers into ``gradient``.
    """

    def __init__(
        self, group: NetworkGroup, *, units: int, columns: int, clip_norm: float | None
    ) -> None:
        device = group.rows.online.device
        hidden, actions = group.critic.hidden, group.policy.outputs
        self.value = torch.empty(units, 1, columns, device=device)
        self._activation = (units, hidden, columns)
        self.passes = self._passes()
        self.outputs = torch.empty(units, actions, columns, device=device)
        self.action_weights = torch.empty(units, hidden, actions, device=device)
        self.folded = torch.zeros(units, hidden, group.critic.inputs + 1, device=device)
        self.affine_gradient = self.folded
        mean_field = group.critic_input is CriticInput.MEAN_FIELD
        width = group.layout.action.stop + 1 if mean_field else group.critic_width
        self._multiplied = (units, hidden, width)
        if mean_field or group.critic_columns is not None:
            self.affine_gradient = self.folded.new_empty(self._multiplied)
        layers = (*group.critic.layers, *group.policy.layers)
        outputs = [layer.outputs for layer in layers[1:]]
        self.bias_gradient = torch.zeros(units, sum(outputs), device=device)
        biases = self.bias_gradient.unsqueeze(2).split_with_sizes(outputs, 1)
        upper = [
            Linear(torch.empty(units, layer.outputs, layer.inputs, device=device), bias)
            for layer, bias in zip(layers[1:], biases, strict=True)
        ]
        self.critic_gradient, self.policy_gradient = upper[:2], upper[2:]
        self.folded_policy = self.policy_gradient[0].weight
        if group.policy_columns is not None:
            self.folded_policy.zero_()
            first = self.folded_policy.new_empty(units, hidden, group.policy_width)
            self.policy_gradient[0] = self.policy_gradient[0]._replace(weight=first)
        self.gradient = torch.zeros(units, group.rows.online.shape[1], device=device)
        self.clipper = Clipper(
            (parts(self.folded), *upper),
            [layer.parts(self.gradient) for layer in layers],
            norm=clip_norm,
        )

    def _passes(self) -> Passes:
        first, second, below = (self.value.new_zeros(self._activation) for _ in range(3))
        return Passes(first, Activations(second, below), Activations(second, below))

    @cached_property
    def apart(self) -> Passes:
        """Return further ``passes``, for a thread beside."""
        return self._passes()

    @cached_property
    def spread(self) -> tuple[Tensor, Tensor]:
        """Return buffers for the first layers of critics and their targets as multiplied."""
        shape = self._multiplied
        return self.folded.new_empty(shape), self.folded.new_empty(shape)

    @cached_property
    def policies(self) -> tuple[Tensor, Tensor]:
        """Return buffers for W of the first layers of policies and targets as multiplied."""
        first = self.policy_gradient[0].weight
        return torch.empty_like(first), torch.empty_like(first)

    @cached_property
    def second_layers(self) -> tuple[Tensor, Tensor]:
        """Return buffers for W of the second layers of critics and policies."""
        units, hidden, _ = self._activation
        critic = self.value.new_empty(units, hidden, hidden)
        return critic, torch.empty_like(critic)

    @cached_property
    def seen(self) -> Tensor:
        """Return a buffer for local critic inputs and ones, shape (columns, units x width)."""
        units, _, columns = self.value.shape
        return self.value.new_empty(columns, units * self._multiplied[2])

    @cached_property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """Return buffers for copies of online and target rows of non-consecutive units."""
        return torch.empty_like(self.gradient), torch.empty_like(self.gradient)
