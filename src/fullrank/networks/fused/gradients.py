"""Base of the hand-written actor-critic updates: noise, kernel, and policy gradient."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fullrank.codes.targets import LIMIT
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.common.updates import GRID, snap
from fullrank.networks.fused import kernels
from fullrank.networks.fused.cuda import HostCopy, one_ahead
from fullrank.networks.fused.minibatch import block_columns
from fullrank.networks.fused.mlp import accumulate, backward, forward, hidden
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.unit_batch import Passes, UnitBatch, UnitBatches

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


class FusedGradients:
    """Updates batched over agents; subclasses supply the critics' inputs.

    Args:
        groups: All agents, with the broadcast parameters.
        weights: Hyperparameters of the losses.
        seed: The run's seed.
    """

    def __init__(self, groups: Sequence[NetworkGroup], weights: LossWeights, *, seed: int) -> None:
        self._groups, self._weights, self._seed = groups, weights, seed
        self._device = groups[0].rows.online.device
        width = groups[0].policy.hidden
        self._columns = block_columns(weights.batch_size, hidden=width, device=self._device)
        self.kernel = kernels.choose(self._device, least_product=width * self._columns)
        self._batches = [
            UnitBatches(group, clip_norm=weights.clip_norm, kernel=self.kernel) for group in groups
        ]

    def _noise(
        self, unit_batch: UnitBatch, purpose: str, *key: int, size: int, width: int
    ) -> Tensor:
        """Draw the noise of each agent's actions, keyed by (purpose, *key, agent).

        Returns:
            Noise in host memory, shape (units, actions, width), zero from column ``size`` on.
        """
        generators = [stream(self._seed, purpose, *key, agent) for agent in unit_batch.agents]
        group = unit_batch.group
        noise = torch.from_numpy(group.head.draw(generators, (group.policy.outputs, size)))
        return noise if width == size else torch.nn.functional.pad(noise, (0, width - size))

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
        passes.first.baddbmm_(buffers.action_weights, actions - replayed)
        hidden(unit_batch.critic, passes.first, passes.critic)
        backward(unit_batch.critic, -weight, passes.critic)
        below = passes.critic.below
        action_gradient = torch.bmm(buffers.action_weights.transpose(1, 2), below)
        gradient = head.gradient(outputs, actions, action_gradient)
        penalty = 2.0 * self._weights.logit_penalty / unit_batch.group.policy.outputs
        gradient.addcmul_(outputs, weight, value=penalty)
        backward(unit_batch.policy, gradient, passes.policy)
        first, second, third = buffers.policy_gradient
        accumulate(first, passes.policy.below, own.transpose(1, 2), beta=beta)
        passes.policy.upper_gradients(gradient, second, third, beta=beta)

    def _by_agent(
        self, computed: Iterator[tuple[Sequence[int], Iterator[FloatArray]]]
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield the updates of unit batches by agent.

        On CUDA those of a batch follow the launch of the next, so that the device computes while
        the caller uses them.
        """
        for agents, updates in one_ahead(computed) if snaps_on(self._device) else computed:
            yield from zip(agents, updates, strict=False)

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return kernels.fingerprint(self.kernel, self._device)


def snaps_on(device: torch.device) -> bool:
    """Return whether updates are snapped on their device, before they are copied to the host."""
    return device.type == "cuda"


def updates_in(gradient: Tensor, *, size: int) -> Iterator[FloatArray]:
    """Return the first entries of each row of a buffer, snapped; copies that nothing overwrites.

    The buffer may be overwritten once they are read, and on CUDA at once.
    """
    if not snaps_on(gradient.device):
        return (_snapped(row[:size]) for row in gradient.cpu().numpy())
    scaled = gradient[:, :size] * (1.0 / GRID)  # as ``snap``, to the bit
    return _arriving(HostCopy(scaled.round_().mul_(GRID).add_(0.0)))


def weighted(update: FloatArray, weight: float) -> FloatArray:
    """Append its weight to a summand; where it is no exact one, zeros and a negative weight."""
    sealed = np.zeros(len(update) + 1, np.float32)
    fits = max(update.max(), -update.min()) <= LIMIT  # False where it holds a NaN
    if fits:
        sealed[:-1] = update
    sealed[-1] = weight if fits else -LIMIT
    return sealed


def _arriving(copy: HostCopy) -> Iterator[FloatArray]:
    """Yield the rows of a copy, waiting for it when the first is wanted."""
    yield from copy.array()


def _snapped(row: FloatArray) -> FloatArray:
    """Snap in blocks that stay in cache, which doubles the speed for millions of entries."""
    copy = np.empty_like(row)
    for start in range(0, row.size, SNAP_ENTRIES):
        block = slice(start, start + SNAP_ENTRIES)
        snap(row[block], out=copy[block])
    return copy
