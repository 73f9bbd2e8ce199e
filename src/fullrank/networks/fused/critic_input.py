"""Inputs of a critic: a selection from the observations and actions of all agents."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from fullrank.networks.fused.products import row_sum
from fullrank.replay.layout import Layout

Copy: TypeAlias = tuple[Tensor, Tensor]
"""Two tensors of one shape: where to, and where from."""


def consecutive(rows: Sequence[int]) -> bool:
    """Return whether the rows are consecutive, so that a slice selects them."""
    return tuple(rows) == tuple(range(rows[0], rows[0] + len(rows)))


class GatherIndex:
    """Rows along the first axis: a view of consecutive rows, a copy of any others.

    Args:
        rows: Indices of the rows; the last may be repeated.
        device: Device of the tensors.
    """

    def __init__(self, rows: Sequence[int], device: torch.device) -> None:
        self._index = torch.tensor(rows, device=device)
        self._span = slice(rows[0], rows[-1] + 1) if consecutive(rows) else None

    def of(self, tensor: Tensor) -> Tensor:
        """Return the rows of a tensor, for reading only."""
        return tensor.index_select(0, self._index) if self._span is None else tensor[self._span]

    def columns_of(self, tensor: Tensor) -> Tensor:
        """Return the columns of a matrix with these indices, for reading only."""
        return tensor.index_select(1, self._index) if self._span is None else tensor[:, self._span]

    def put(self, tensor: Tensor, values: Tensor) -> None:
        """Overwrite the rows of a tensor."""
        if self._span is None:
            tensor.index_copy_(0, self._index, values)
        else:
            tensor[self._span] = values


class LiveColumns:
    """Columns of first layers that multiply inputs which are not always zero.

    Args:
        columns: Indices of these columns, ascending.
    """

    def __init__(self, columns: Sequence[int]) -> None:
        starts = [i for i, c in enumerate(columns) if i == 0 or c != columns[i - 1] + 1]
        lengths = np.diff([*starts, len(columns)]).tolist()
        self._runs = [
            (slice(columns[i], columns[i] + length), slice(i, i + length))
            for i, length in zip(starts, lengths, strict=True)
        ]

    def spread(self, first: Tensor, out: Tensor) -> Iterator[Copy]:
        """Yield the copies of these columns of layers, (units, outputs, inputs), side by side."""
        for source, place in self._runs:
            yield out[:, :, place], first[:, :, source]

    def fold(self, gradient: Tensor, out: Tensor) -> Iterator[Copy]:
        """Yield the copies of the gradient at these columns into that at the layers."""
        for place, source in self._runs:
            yield out[:, :, place], gradient[:, :, source]


def copy_all(copies: Iterable[Copy]) -> None:
    """Copy the present values."""
    for out, source in copies:
        out.copy_(source)


class CriticInput(StrEnum):
    """Kind of a critic, named for its input."""

    CENTRALISED = "centralised"
    """All observations and all actions."""
    LOCAL = "local"
    """The agent's own observation and action, and the actions of its neighbours, if any."""
    MEAN_FIELD = "mean_field"
    """All observations, the own action, and the mean of the other agents' actions, padded with
    zeros to equal length."""


def critic_inputs(
    critic_input: CriticInput, layout: Layout, agent: int, *, neighbours: int = 0
) -> int:
    """Return the number of entries in the input of the agent's critic.

    Args:
        critic_input: Kind of the critic.
        layout: Layout of a transition.
        agent: Index of the agent.
        neighbours: With ``CriticInput.LOCAL``, the number of neighbours whose actions it sees.
    """
    observations, actions = layout.observation_sizes, layout.action_sizes
    match critic_input:
        case CriticInput.CENTRALISED:
            return sum(observations) + sum(actions)
        case CriticInput.LOCAL:
            return observations[agent] + (1 + neighbours) * actions[agent]
        case CriticInput.MEAN_FIELD:
            return sum(observations) + actions[agent] + max(actions)


class MeanField:
    """First layers [W | b] of mean-field critics, as centralised ones with tied columns.

    The input of a mean-field critic is a linear image T x of the joint input x, and
    W (T x) = (W T) x. Spreading its first layer to W T makes it a centralised critic; the gradient
    G at W T is then folded to G T', the gradient at W.

    Args:
        layout: Layout of a transition; entries of observations that are always zero are left out.
        agents: Agents of the units; their actions have equal sizes.
        device: Device of the layers.
    """

    def __init__(self, layout: Layout, agents: Sequence[int], device: torch.device) -> None:
        sizes = torch.tensor(layout.action_sizes)
        owner = torch.arange(layout.agents).repeat_interleave(sizes)
        entry = torch.arange(len(owner)) - (sizes.cumsum(0) - sizes)[owner]
        mine = (owner == torch.tensor(agents)[:, None])[:, None]
        share = 1.0 / max(layout.agents - 1, 1)
        own, self._widest = int(sizes[agents[0]]), int(sizes.max())
        self._agents, self._observed = layout.agents, layout.observation.stop
        self._live = LiveColumns(layout.live.tolist())
        first = sum(layout.observation_sizes)
        self._own = slice(first, first + own)
        self._mean = slice(self._own.stop, self._own.stop + self._widest)
        source = torch.where(mine, self._own.start + entry, self._mean.start + entry)
        self._source = source.to(device)
        self._scale = torch.where(mine, 1.0, share).to(device)
        self._others = torch.where(mine, 0.0, share).to(device)
        self._place = (owner * self._widest + entry).to(device)
        self._own_columns = mine[:, 0].nonzero()[:, 1].view(len(agents), 1, own).to(device)

    def spread(self, first: Tensor, out: Tensor) -> None:
        """Expand the layer, (units, hidden, seen + 1), to W T for joint inputs, (.., joint + 1)."""
        copy_all(self._live.spread(first, out))
        actions = first.gather(2, self._source.expand(-1, first.shape[1], -1))
        torch.mul(actions, self._scale, out=out[:, :, self._observed : -1])
        out[:, :, -1] = first[:, :, -1]

    def fold(self, gradient: Tensor, out: Tensor) -> None:
        """Reduce the gradient, (units, hidden, joint + 1), to G T' at the layer, (.., seen + 1)."""
        units, hidden, _ = gradient.shape
        copy_all(self._live.fold(gradient, out))
        actions = gradient[:, :, self._observed : -1]
        out[:, :, self._own] = actions.gather(2, self._own_columns.expand(-1, hidden, -1))
        by_agent = actions.new_zeros(units, hidden, self._agents * self._widest)
        by_agent.index_copy_(2, self._place, actions * self._others)
        by_agent = by_agent.view(units * hidden, self._agents, self._widest)
        out[:, :, self._mean] = row_sum(by_agent).view(units, hidden, self._widest)
        out[:, :, -1] = gradient[:, :, -1]
