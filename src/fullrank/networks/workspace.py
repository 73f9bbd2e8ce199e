"""Preallocated buffers for the update of a few units of one cohort."""

from functools import cached_property

import torch
from torch import Tensor

from fullrank.networks.clip import Clipper
from fullrank.networks.cohort import Cohort
from fullrank.networks.mlp import Mlp, Tape
from fullrank.networks.sight import Sight


class Workspace:
    """Buffers whose first axis is the unit; they hold nothing between two uses.

    Attributes:
        critic: Tape of the critics.
        policy: Tape of the policies; shares all but its activations with ``critic``.
        own: Own observations and ones, shape (units, own + 1, columns).
        value: Q, shape (units, 1, columns).
        outputs: Of the policies, shape (units, action size, columns).
        action_weights: Columns of the critics' first layer that the own action meets.
        critic_gradient: One per layer; of mean-field critics, the first as spread.
        folded: The first layer's, as the critics' parameters have it.
        policy_gradient: One per layer.
        gradient: Flat rows as the parameters', which ``clipper`` fills.
        clipper: From both layered gradients to ``gradient``.
    """

    def __init__(self, cohort: Cohort, *, units: int, columns: int, clip_norm: float) -> None:
        device = cohort.rows.online.device
        hidden, actions = cohort.critic.hidden, cohort.policy.outputs
        first, second, below = (
            torch.zeros(units, hidden, columns, device=device) for _ in range(3)
        )
        self.critic = Tape(first, second, below)
        self.policy = Tape(second, second, below)
        self.own = torch.empty(units, cohort.policy.inputs + 1, columns, device=device)
        self.value = torch.empty(units, 1, columns, device=device)
        self.outputs = torch.empty(units, actions, columns, device=device)
        self.action_weights = torch.empty(units, hidden, actions, device=device)
        layers = _layers(cohort.critic, units, device)
        self.critic_gradient, self.folded = layers, layers[0]
        self._joint = (units, hidden, cohort.layout.action.stop + 1)
        if cohort.sight is Sight.MEAN_FIELD:
            self.critic_gradient = [layers[0].new_empty(self._joint), *layers[1:]]
        self.policy_gradient = _layers(cohort.policy, units, device)
        self.gradient = torch.zeros(units, cohort.rows.online.shape[1], device=device)
        self.clipper = Clipper(
            (*layers, *self.policy_gradient),
            (*cohort.critic.weights(self.gradient)[:3], *cohort.policy.weights(self.gradient)[:3]),
            norm=clip_norm,
        )

    @cached_property
    def spread(self) -> tuple[Tensor, Tensor]:
        """Room for first layers of mean-field critics and their targets, for joint inputs."""
        return self.folded.new_empty(self._joint), self.folded.new_empty(self._joint)

    @cached_property
    def seen(self) -> Tensor:
        """Room for own observations, own actions and ones, shape (units, inputs + 1, columns)."""
        units, _, columns = self.value.shape
        inputs = self.folded.shape[2]
        return torch.empty(units, inputs, columns, device=self.value.device)

    @cached_property
    def parameters(self) -> tuple[Tensor, Tensor]:
        """Room for online and target rows of units that do not lie side by side."""
        return torch.empty_like(self.gradient), torch.empty_like(self.gradient)


def _layers(net: Mlp, units: int, device: torch.device) -> list[Tensor]:
    return [
        torch.empty(units, layer.outputs, layer.inputs + 1, device=device) for layer in net.layers
    ]
