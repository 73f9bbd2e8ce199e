"""Bases of gradients: of those that stay on their device, and of hand-written actor-critics.

The latter have noise, kernel, graphs, and the policy gradient.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fullrank.codes.targets import LIMIT
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import GRID, snap
from fullrank.networks.fused import kernels
from fullrank.networks.fused.critic_input import GatherIndex
from fullrank.networks.fused.cuda import Graphs, HostCopy, one_ahead, stays_on
from fullrank.networks.fused.minibatch import block_columns
from fullrank.networks.fused.mlp import accumulate, backward, forward, upper
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.products import batched_product, row_sum, total_in_double
from fullrank.networks.fused.unit_batch import STATISTICS, Passes, UnitBatch, UnitBatches
from fullrank.networks.heads import action_noise, keys_of

HostDraw: TypeAlias = Callable[[], tuple[Tensor, ...]]
"""Makes on the host what varies from iteration to iteration for a unit batch, such as the keys of
noise, in entries of 32 bits."""

Stages: TypeAlias = Callable[[Iterator[HostDraw], Callable[[], None]], Iterator[UnitBatch]]
"""Computes, given draws and how to check, unit batches one after the other."""

Then: TypeAlias = Callable[[Tensor], None]
"""Computes further from the rows of units, into buffers of its own."""


def nothing(rows: Tensor) -> None:
    """Compute nothing further."""


COARSE, FINE = 2.0**26, 2.0**-10
"""Values of a coarse and of a fine entry of 1, which hold a statistic together. Magnitudes up to
2^25 are kept to a relative 2^-23, and to 2^-46 on the grid of updates."""

BEYOND = 2.0**60
"""Stands for infinity: it has no part below 2^-10."""

SNAP_ENTRIES = 2**16
"""Entries snapped at a time, few enough to stay in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Hyperparameters of the losses."""

    batch_size: int
    """Number of transitions in a call, or the least number if calls differ."""
    discount: float
    clip_norm: float | None
    """L2 norm to which each variable's gradient is clipped; None: no clipping here."""
    logit_penalty: float
    transition: float | None = None
    """Weight of a transition in which the agent acted; None: 1 / their number."""


class StayingGradients(ABC):
    """Gradients that leave updates on the device of the parameters; implements ``Gradients``.

    Args:
        device: The device.
        kernel: Kernels of the products.
    """

    def __init__(self, device: torch.device, kernel: kernels.Kernel) -> None:
        self._device, self.kernel = device, kernel

    @property
    def device(self) -> torch.device:
        """Return the device of the updates."""
        return self._device

    @abstractmethod
    def rows(
        self,
        batch: Rows,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, Tensor]]:
        """Compute u_i for each requested unit where it stays, with the bits of ``compute``.

        Only one call may be active: a newer call reuses the buffers of an older one.

        Yields:
            (i, u_i), which may be overwritten once the next one is asked for.
        """

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit, in its own order; see ``Gradients.compute``."""
        rows = self.rows(batch, units, iteration=iteration, check_cancelled=check_cancelled)
        return self._on_host(rows)

    def _on_host(
        self, computed: Iterator[tuple[UnitIndex, Tensor]]
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Yield updates in host memory, where nothing overwrites them.

        On CUDA each follows the launch of the next, so that the device computes while the caller
        uses it.
        """
        copies = one_ahead((unit, HostCopy(row)) for unit, row in computed)
        return ((unit, copy.array()) for unit, copy in copies)

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return kernels.fingerprint(self.kernel, self._device)


class FusedGradients(StayingGradients):
    """Updates batched over agents; subclasses supply the critics' inputs.

    Args:
        groups: All agents, with the broadcast parameters.
        weights: Hyperparameters of the losses.
        seed: The run's seed.
    """

    def __init__(self, groups: Sequence[NetworkGroup], weights: LossWeights, *, seed: int) -> None:
        self._groups, self._weights, self._seed = groups, weights, seed
        self._after = 2 * len(STATISTICS) + (weights.transition is not None)
        width, device = groups[0].policy.hidden, groups[0].rows.online.device
        self._columns = block_columns(weights.batch_size, hidden=width, device=device)
        super().__init__(device, kernels.choose(device, least_product=width * self._columns))
        self._batches = [
            UnitBatches(group, clip_norm=weights.clip_norm, kernel=self.kernel) for group in groups
        ]
        self._graphs = Graphs(self._device)
        self._laid = cache(self._new_rows)
        self._places = cache(self._new_places)

    def _keys(self, unit_batch: UnitBatch, purpose: str, *key: int) -> tuple[Tensor]:
        """Return the keys of each agent's noise, (purpose, *key, agent), in host memory."""
        return (keys_of(self._seed, purpose, *key, last=unit_batch.agents),)

    def _noise(self, unit_batch: UnitBatch, keys: Tensor, *, size: int, width: int) -> Tensor:
        """Draw the noise of each agent's actions where its keys lie; see ``action_noise``."""
        group = unit_batch.group
        return action_noise(group.head, keys, (group.policy.outputs, size), width=width)

    def _policy_gradient(
        self,
        unit_batch: UnitBatch,
        passes: Passes,
        own: Tensor,
        replayed: Tensor,
        noise: Tensor,
        *,
        weight: Tensor,
        beta: float,
    ) -> None:
        """Accumulate the policies' gradients.

        Only the own actions differ from the critic's pass, so only their columns are computed.

        Args:
            unit_batch: Units.
            passes: Buffers that hold the pre-activation of the critics' first layer.
            own: Own observations, shape (units, own, columns).
            replayed: Own actions in the critics' pass, shape (units, actions, columns).
            noise: Noise of the new actions, same shape as ``replayed``.
            weight: Weight of each transition, shape (units, 1, columns).
            beta: Factor of the previous gradients, to which the new ones are added.
        """
        buffers, head = unit_batch.buffers, unit_batch.group.head
        outputs = forward(unit_batch.policy, own, passes.policy, buffers.outputs)
        actions = head.sample(outputs, noise)
        batched_product(buffers.action_weights, actions - replayed, passes.first, beta=1.0)
        score = upper(unit_batch.critic, passes.first, passes.critic, torch.empty_like(weight))
        backward(unit_batch.critic, -weight, passes.critic)
        below = passes.critic.below
        action_weights = buffers.action_weights.transpose(1, 2)
        action_gradient = batched_product(action_weights, below, torch.empty_like(outputs))
        gradient = head.gradient(outputs, actions, action_gradient)
        penalty = self._weights.logit_penalty / unit_batch.group.policy.outputs
        gradient.addcmul_(outputs, weight, value=2.0 * penalty)
        size = row_sum(outputs.square())
        buffers.actor_losses.add_(size.mul_(penalty).sub_(score).mul_(weight))
        backward(unit_batch.policy, gradient, passes.policy)
        first, second, third = buffers.policy_gradient
        accumulate(first, passes.policy.below, own.transpose(1, 2), beta=beta)
        passes.policy.upper_gradients(gradient, second, third, beta=beta)

    def _launched(
        self,
        agents: tuple[UnitIndex, ...],
        key: Hashable,
        stages: Stages,
        *,
        draws: Sequence[HostDraw],
        check_cancelled: Callable[[], None],
        then: Then,
    ) -> Tensor:
        """Compute the agents' rows where they stay; on CUDA all of it is one graph.

        Args:
            agents: The agents, of which each is in one unit batch.
            key: Names the stages.
            stages: Compute the unit batches.
            draws: What the stages take, in this order; shapes depend on ``agents`` and ``key``.
            check_cancelled: Raises ``Cancelled`` to abandon the work.
            then: Computes further from the rows, in the same graph.

        Returns:
            Shape (agents, P), zero behind each row; the next call overwrites it.
        """
        rows, forms = self._laid(agents), list[list[tuple[torch.Size, torch.dtype]]]()

        def draw() -> Tensor:
            drawn = [draw() for draw in draws]
            forms[:] = [[(each.shape, each.dtype) for each in part] for part in drawn]
            words = [each.flatten().view(torch.int32) for part in drawn for each in part]
            return torch.cat(words)

        def compute(draw: Callable[[], Tensor], check: Callable[[], None]) -> None:
            flat = draw()
            sizes = [shape.numel() for part in forms for shape, _ in part]
            parts = iter(torch.split(flat, sizes))
            there = [
                tuple(next(parts).view(dtype).view(shape) for shape, dtype in part)
                for part in forms
            ]
            for unit_batch in stages((partial(tuple, part) for part in there), check):
                self._seal(unit_batch, self._places(agents, unit_batch.agents), rows)
            then(rows)

        self._graphs.run((agents, key, then), compute, draw=draw, check_cancelled=check_cancelled)
        return rows

    def together(
        self,
        batch: Rows,
        agents: Sequence[UnitIndex],
        *,
        iteration: int,
        check_cancelled: Callable[[], None] = lambda: None,
        then: Then = nothing,
    ) -> Tensor:
        """Compute u_i for each requested agent, on CUDA as one graph.

        Args:
            batch: Packed transitions, shape (B, row_size).
            agents: The units.
            iteration: Keys the draws.
            check_cancelled: Raises ``Cancelled`` to abandon the work.
            then: Computes further from the rows in the same graph, into tensors of its own; the
                same object from call to call.

        Returns:
            The updates side by side on their device, shape (units, P), zero behind each; the next
            call overwrites them.
        """
        return self._together(batch, tuple(agents), (iteration,), check_cancelled, then)

    @abstractmethod
    def _together(
        self,
        batch: Rows,
        agents: tuple[UnitIndex, ...],
        key: tuple[int, ...],
        check_cancelled: Callable[[], None],
        then: Then,
    ) -> Tensor:
        """Compute as ``together``, with draws keyed by ``key`` and agent."""

    def _on_host(
        self, computed: Iterator[tuple[UnitIndex, Tensor]]
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        if stays_on(self._device):
            return super()._on_host(computed)
        return ((unit, row.numpy()) for unit, row in computed)  # which nothing overwrites

    def _seal(self, unit_batch: UnitBatch, places: GatherIndex, rows: Tensor) -> None:
        """Snap the gradients into their places in rows, and encode the statistics behind them."""
        size, statistics = unit_batch.group.size, _statistics(unit_batch)
        end = size + self._after
        places.put(rows[:, :size], snap_in_place(unit_batch.buffers.gradient[:, :size]))
        places.put(rows[:, end - statistics.shape[1] : end], statistics)

    def _new_rows(self, agents: tuple[UnitIndex, ...]) -> Tensor:
        longest = max(group.size for group in self._groups)
        return torch.zeros(len(agents), longest + self._after, device=self._device)

    def _new_places(self, agents: tuple[UnitIndex, ...], own: tuple[UnitIndex, ...]) -> GatherIndex:
        return GatherIndex([agents.index(agent) for agent in own], self._device)

    def _rows_of(self, unit_batch: UnitBatch) -> Iterator[tuple[int, Tensor]]:
        """Yield each agent's update: gradient, snapped; place of a weight, if any; statistics."""
        agents, buffers = dict.fromkeys(unit_batch.agents), unit_batch.buffers
        gradients = buffers.gradient[:, : unit_batch.group.size].numpy()
        statistics = _statistics(unit_batch).numpy()
        for agent, row, own in zip(agents, gradients, statistics, strict=False):
            update = _snapped(row, after=self._after)
            update[len(update) - len(own) :] = own
            yield agent, torch.from_numpy(update)


def encode(shares: Tensor) -> Tensor:
    """Split statistics, shape (..., n), into multiples of 2^-10 and rests, (..., 2 n), snapped.

    A number that is not finite is clamped; if its gradient is not finite, that stops the run.

    Args:
        shares: The statistics, in float64.
    """
    finite = shares.nan_to_num(nan=BEYOND).clamp_(-BEYOND, BEYOND)
    coarse = (finite / FINE).round_().mul_(FINE)
    pairs = torch.stack([coarse / COARSE, (finite - coarse).div_(FINE)], dim=-1)
    return snap_in_place(pairs.clamp_(-LIMIT, LIMIT).flatten(-2).to(torch.float32))


def encoded(shares: NDArray[np.float64]) -> FloatArray:
    """Return ``encode`` of an array of statistics."""
    entries: FloatArray = encode(torch.from_numpy(shares)).numpy()
    return entries


def snap_in_place(values: Tensor) -> Tensor:
    """Round to the grid in place, with the bits of ``snap``."""
    return values.mul_(1.0 / GRID).round_().mul_(GRID).add_(0.0)


def _statistics(unit_batch: UnitBatch) -> Tensor:
    """Return the encoded statistics of each unit, shape (units, entries)."""
    return encode(total_in_double(unit_batch.buffers.terms).flatten(1).t())


def weigh(update: Tensor, size: int, weight: float, *, factor: float) -> None:
    """Scale a summand and write its weight behind it, in place.

    A gradient that is too large to be an exact summand becomes zero, and its weight negative; one
    that is not finite is left, for whoever checks updates.

    Args:
        update: The gradient, its first ``size`` entries, the place of the weight, and statistics.
        size: Entries of the gradient.
        weight: Sum of the weights of its transitions.
        factor: Power of two by which both are scaled.
    """
    gradient = update[:size]
    if factor != 1.0:
        snap_in_place(gradient.mul_(factor))
    least, most = gradient.aminmax()
    largest = torch.maximum(most, -least)
    beyond = (largest > LIMIT) & (largest < np.inf)
    gradient.masked_fill_(beyond, 0.0)
    update[size] = weight * factor
    update[size].masked_fill_(beyond, -LIMIT)


def _snapped(row: FloatArray, *, after: int) -> FloatArray:
    """Snap in blocks that stay in cache, which doubles the speed for millions of entries.

    Returns:
        The snapped row, and ``after`` zeros.
    """
    copy = np.empty(row.size + after, np.float32)
    copy[row.size :] = 0.0
    for start in range(0, row.size, SNAP_ENTRIES):
        block = slice(start, min(start + SNAP_ENTRIES, row.size))
        snap(row[block], out=copy[block])
    return copy
