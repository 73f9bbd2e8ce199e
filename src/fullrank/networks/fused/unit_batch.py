"""Batches of units of one group that are computed together."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fullrank.networks.fused.buffers import Buffers
from fullrank.networks.fused.critic_input import CriticInput, MeanField
from fullrank.networks.fused.gather_index import GatherIndex, consecutive
from fullrank.networks.fused.network_group import NetworkGroup

ENTRIES = {"cpu": 280_000, "cuda": 2**25}
"""Entries of one activation, units x hidden x columns; a core's cache holds several of them."""

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
            spreads ``affine`` of mean-field critics.
        agent_rows: Rows of the units in tensors indexed by agent.
        action_rows: Rows of the own actions in a joint input, flat.
        action_columns: Index of the own actions among the columns of the critics' first layer.
        local: True for local critics, which see own observations and some actions only.
    """

    def __init__(self, group: NetworkGroup, rows: tuple[int, ...], buffers: Buffers) -> None:
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
        self._own_rows = GatherIndex(own_rows.tolist(), online.device)
        actions = group.action_index[self._index]
        self.action_rows = GatherIndex(actions.flatten().tolist(), online.device)
        self.agent_rows = GatherIndex(self.agents, online.device)
        columns, self.local = actions, group.critic_input is CriticInput.LOCAL
        if self.local:
            self._critic_rows = group.critic_index[self._index].flatten()
            inputs = torch.arange(group.critic.inputs, device=online.device)
            own = slice(group.policy.inputs, group.policy.inputs + group.policy.outputs)
            columns = inputs[own].expand(len(rows), -1)
        self.action_columns = columns.unsqueeze(1).expand(-1, group.critic.hidden, -1)
        self._mean_field: MeanField | None = None
        if group.critic_input is CriticInput.MEAN_FIELD:
            self._mean_field = MeanField(group.layout, self.agents, online.device)
            self._tied = self.critic.affine, self.target_critic.affine
            critic, target_critic = buffers.spread
            self.critic = self.critic._replace(affine=critic)
            self.target_critic = self.target_critic._replace(affine=target_critic)

    def refresh(self) -> None:
        """Copy the current parameters, unless the weights are views of them."""
        if self._copied:
            online, target = self.buffers.parameters
            torch.index_select(self.group.rows.online, 0, self._index, out=online)
            torch.index_select(self.group.rows.target, 0, self._index, out=target)

    def prepare(self) -> None:
        """Prepare the critics' first layers for the products, and zero the bias gradients."""
        self.buffers.bias_gradient.zero_()
        if self._mean_field is not None:
            for tied, spread in zip(self._tied, self.buffers.spread, strict=True):
                self._mean_field.spread(tied, out=spread)
        torch.gather(self.critic.affine, 2, self.action_columns, out=self.buffers.action_weights)

    def clipped(self) -> Tensor:
        """Clip the gradients variable by variable, into flat rows in the parameters' order."""
        if self._mean_field is not None:
            self._mean_field.fold(self.buffers.affine_gradient, out=self.buffers.folded)
        self.buffers.clipper.clip()
        return self.buffers.gradient

    def own(self, joint: Tensor) -> Tensor:
        """Select the own observations from a joint input, shape (units, own, columns)."""
        return self._own_rows.of(joint).view(len(self.agents), -1, joint.shape[1])

    def seen(self, joint: Tensor) -> Tensor:
        """Select the input of local critics, with ones, shape (units, inputs + 1, columns)."""
        flat = self.buffers.seen.view(-1, joint.shape[1])
        torch.index_select(joint, 0, self._critic_rows, out=flat)
        return self.buffers.seen


class UnitBatches:
    """Split the units of a group into batches, and keep batches and buffers for reuse."""

    def __init__(self, group: NetworkGroup, *, clip_norm: float) -> None:
        self._group, self._clip_norm = group, clip_norm
        self._device = group.rows.online.device
        self._buffers: dict[tuple[int, int], Buffers] = {}
        self._batches: dict[tuple[tuple[int, ...], int], UnitBatch] = {}

    def split(self, rows: Sequence[int], columns: int) -> Iterator[tuple[int, ...]]:
        """Cut rows into pieces that fit the cache, or into single rows if the group's are ``lone``.

        A product of fewer matrices than threads is split inside a matrix, and that of a lone narrow
        matrix takes another routine; both change its bits. A short piece therefore repeats its last
        row.
        """
        threads = torch.get_num_threads() if self._device.type == "cpu" else 1
        least = max(threads, 2 if self._group.lone else 1)
        entries = self._group.critic.hidden * columns
        width = 1 if self._group.lone else max(ENTRIES[self._device.type] // entries, least)
        for start in range(0, len(rows), width):
            chosen = tuple(rows[start : start + width])
            yield chosen + chosen[-1:] * (least - len(chosen))

    def take(self, rows: tuple[int, ...], columns: int) -> UnitBatch:
        """Return the unit batch of these rows, with the current parameters."""
        key = (rows, columns)
        if key not in self._batches:
            if len(self._batches) == KEPT:
                self._batches.clear()
            self._batches[key] = UnitBatch(self._group, rows, self._buffers_of(len(rows), columns))
        self._batches[key].refresh()
        return self._batches[key]

    def _buffers_of(self, units: int, columns: int) -> Buffers:
        key = (units, columns)
        if key not in self._buffers:
            self._buffers[key] = Buffers(
                self._group, units=units, columns=columns, clip_norm=self._clip_norm
            )
        return self._buffers[key]
