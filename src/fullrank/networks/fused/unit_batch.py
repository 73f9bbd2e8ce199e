"""Batches of units of one group that are computed together, in preallocated buffers."""

from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache, partial
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.networks.fused.critic_input import (
    Copy,
    CriticInput,
    GatherIndex,
    MeanField,
    consecutive,
    copy_all,
)
from fullrank.networks.fused.kernels import Kernel
from fullrank.networks.fused.mlp import Activations, Clipper, Linear, Weights, parts
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.products import takes_kernels

STATISTICS = ("critic_loss", "q_taken_mean", "actor_loss")
"""Names of the statistics of actor-critics: both losses, and the mean value of taken actions."""


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
        terms: Terms of the statistics by column, added up over blocks, (3, units, 1, columns).
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
        self.terms = torch.empty(len(STATISTICS), *self.value.shape, device=device)
        self._losses, self._taken, self.actor_losses = self.terms.unbind()
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

    def errors(self, value: Tensor, expected: Tensor, weight: Tensor) -> Tensor:
        """Return the critics' errors in a block, and add the terms of their statistics.

        Args:
            value: Q of the taken actions, which is overwritten, shape (units, 1, columns).
            expected: Expected returns, like ``weight`` of the same shape.
            weight: Weight of each transition.
        """
        self._taken.add_(value * weight)
        error = value.sub_(expected)
        self._losses.add_(error.square().mul_(weight))
        return error

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


ENTRIES = {"cpu": 280_000, "cuda": 2**27}
"""Entries of one activation, units x hidden x columns; a core's cache holds several of them. On
CUDA half a gibibyte."""

NARROW_INPUTS = 16
"""Inputs of a unit from which MKL gives products with its matrix and with the transpose equal bits;
narrower matrices are few bytes to turn."""

KEPT = 256
"""Maximum number of unit batches kept: learners' rows change only with the code."""


class UnitBatch:
    """State of several units that does not change between iterations.

    Creating a view costs as much as a small product, so all views are created once.

    Attributes:
        group: Group of all units.
        agents: Agents of the units; the last may be repeated.
        buffers: Buffers of this width, shared with other batches.
        critic, policy, target_critic, target_policy: Weights of the units' networks; ``prepare``
            and ``prepare_targets`` write those that differ from the parameters.
        agent_rows: Rows of the units in tensors indexed by agent.
        action_rows: Rows of the own actions in a joint input, flat.
        action_columns: Index of the own actions among the columns of the critics' first layer.
        local: True for local critics, which see own observations and some actions only.
    """

    def __init__(
        self, group: NetworkGroup, rows: tuple[int, ...], buffers: Buffers, kernel: Kernel
    ) -> None:
        self.group, self.buffers = group, buffers
        self.agents = tuple(group.agents[row] for row in rows)
        self._index = torch.tensor(rows, device=group.rows.online.device)
        self._copied = not consecutive(rows)
        online, target = (
            buffers.parameters
            if self._copied
            else (
                part[rows[0] : rows[0] + len(rows)]
                for part in (group.rows.online, group.rows.target)
            )
        )
        self.critic, self.policy = group.critic.weights(online), group.policy.weights(online)
        self.target_critic = group.critic.weights(target)
        self.target_policy = group.policy.weights(target)
        own_rows = group.observation_index[self._index].flatten()
        self._own_columns = GatherIndex(own_rows.tolist(), online.device)
        actions = group.action_index[self._index]
        self.action_rows = GatherIndex(actions.flatten().tolist(), online.device)
        self.agent_rows = GatherIndex(self.agents, online.device)
        columns, self.local = actions, group.critic_input is CriticInput.LOCAL
        if self.local:
            self._critic_columns = group.critic_index[self._index].flatten()
            inputs = torch.arange(group.critic_width, device=online.device)
            own = slice(group.policy_width, group.policy_width + group.policy.outputs)
            columns = inputs[own].expand(len(rows), -1)
        self.action_columns = columns.unsqueeze(1).expand(-1, group.critic.hidden, -1)
        self._mean_field: MeanField | None = None
        if group.critic_input is CriticInput.MEAN_FIELD:
            self._mean_field = MeanField(group.layout, self.agents, online.device)
        self._critics = self.critic.affine, self.target_critic.affine
        self._make_copies(kernel)

    def _make_copies(self, kernel: Kernel) -> None:
        """Replace weights by buffers where other matrices are multiplied than the parameters'.

        These are first layers without some columns, and second layers of several products that the
        kernel would copy in each.
        """
        group, buffers = self.group, self.buffers
        self._copies, self._target_copies, self._folds = (list[Copy]() for _ in range(3))
        if self._mean_field is not None or group.critic_columns is not None:
            critic, target_critic = buffers.spread
            self.critic = self.critic._replace(affine=critic)
            self.target_critic = self.target_critic._replace(affine=target_critic)
        if self._mean_field is None and group.critic_columns is not None:
            for first, spread in zip(self._critics, buffers.spread, strict=True):
                self._copies += group.critic_columns.spread(first, spread)
            self._folds += group.critic_columns.fold(buffers.affine_gradient, buffers.folded)
        if (columns := group.policy_columns) is not None:
            first, target_first = buffers.policies
            self._copies += columns.spread(self.policy.first.weight, first)
            self._target_copies += columns.spread(self.target_policy.first.weight, target_first)
            self._folds += columns.fold(buffers.policy_gradient[0].weight, buffers.folded_policy)
            self.policy = _with_first(self.policy, first)
            self.target_policy = _with_first(self.target_policy, target_first)
        if kernel.copies_gaps:
            critic, policy = buffers.second_layers
            self._copies.append((critic, self.critic.second.weight))
            self._copies.append((policy, self.policy.second.weight))
            self.critic = _with_second(self.critic, critic)
            self.policy = _with_second(self.policy, policy)

    def _refresh(self) -> None:
        """Copy the current parameters, unless the weights are views of them."""
        if self._copied:
            online, target = self.buffers.parameters
            torch.index_select(self.group.rows.online, 0, self._index, out=online)
            torch.index_select(self.group.rows.target, 0, self._index, out=target)

    def prepare_targets(self) -> None:
        """Prepare the target policies for the products."""
        self._refresh()
        copy_all(self._target_copies)

    def prepare(self) -> None:
        """Prepare the other networks for the products, and zero bias gradients and statistics."""
        self._refresh()
        self.buffers.bias_gradient.zero_()
        self.buffers.terms.zero_()
        copy_all(self._copies)
        if self._mean_field is not None:
            for first, spread in zip(self._critics, self.buffers.spread, strict=True):
                self._mean_field.spread(first, spread)
        torch.gather(self.critic.affine, 2, self.action_columns, out=self.buffers.action_weights)

    def clipped(self) -> Tensor:
        """Clip the gradients variable by variable, into flat rows in the parameters' order."""
        buffers = self.buffers
        if self._mean_field is not None:
            self._mean_field.fold(buffers.affine_gradient, buffers.folded)
        copy_all(self._folds)
        buffers.clipper.clip()
        return buffers.gradient

    def own(self, joint_rows: Tensor) -> Tensor:
        """Select the own observations from a joint input, shape (units, own, columns)."""
        return self._by_unit(self._own_columns.columns_of(joint_rows))

    def seen(self, joint_rows: Tensor) -> Tensor:
        """Select the input of local critics, with ones, shape (units, width, columns)."""
        torch.index_select(joint_rows, 1, self._critic_columns, out=self.buffers.seen)
        return self._by_unit(self.buffers.seen)

    def _by_unit(self, rows: Tensor) -> Tensor:
        """View rows whose columns lie unit by unit as (units, entries, rows); copy narrow ones."""
        by_unit = torch.unflatten(rows, 1, (len(self.agents), -1)).permute(1, 2, 0)
        return by_unit.contiguous() if by_unit.shape[1] < NARROW_INPUTS else by_unit


def _with_first(policy: Weights, weight: Tensor) -> Weights:
    """Replace W of the first layer."""
    return policy._replace(first=policy.first._replace(weight=weight))


def _with_second(network: Weights, weight: Tensor) -> Weights:
    """Replace W of the second layer."""
    second = network.second._replace(weight=weight)
    return network._replace(second=second, second_back=weight.transpose(1, 2))


class UnitBatches:
    """Split the units of a group into batches, and keep batches and buffers for reuse."""

    def __init__(self, group: NetworkGroup, *, clip_norm: float | None, kernel: Kernel) -> None:
        self._group, self._kernel = group, kernel
        self._device = group.rows.online.device
        self._buffers = cache(partial(Buffers, group, clip_norm=clip_norm))
        self._unit_batch = lru_cache(KEPT)(self._new)

    def split(self, rows: Sequence[int], columns: int) -> list[UnitBatch]:
        """Cut rows into unit batches that fit the cache, or of one row where units are ``lone``.

        On a CPU a product of fewer matrices than threads is split inside a matrix, and that of
        fewer than the group's ``least`` takes another routine; both change its bits. A short piece
        therefore repeats its last row.
        """
        pieces = self._pieces(rows, columns)
        return [self._unit_batch(piece, columns) for piece in pieces]

    def _pieces(self, rows: Sequence[int], columns: int) -> Iterator[tuple[int, ...]]:
        apart, least = self._group.lone, max(torch.get_num_threads(), self._group.least)
        if takes_kernels(self._device):
            apart, least = False, 1
        entries = self._group.critic.hidden * columns
        width = 1 if apart else max(ENTRIES[self._device.type] // entries, least)
        for start in range(0, len(rows), width):
            chosen = tuple(rows[start : start + width])
            yield chosen + chosen[-1:] * (least - len(chosen))

    def _new(self, rows: tuple[int, ...], columns: int) -> UnitBatch:
        buffers = self._buffers(units=len(rows), columns=columns)
        return UnitBatch(self._group, rows, buffers, self._kernel)
