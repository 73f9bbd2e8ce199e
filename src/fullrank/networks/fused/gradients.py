"""Base of the hand-written actor-critic updates: minibatch, noise, kernel, and policy gradient.

All critics read the same joint input of a minibatch, so it is built once. It lies in memory as
transitions do, row by row; products read it transposed at no cost. A block is a run of transitions
short enough that intermediate results stay in cache; a column is a transition. Its columns are
padded with zeros to a multiple of 16; padding has weight 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fullrank.codes.targets import LIMIT
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray
from fullrank.common.updates import GRID, snap
from fullrank.networks.fused import kernels
from fullrank.networks.fused.cuda import HostCopy, one_ahead
from fullrank.networks.fused.mlp import accumulate, backward, forward, upper
from fullrank.networks.fused.network_group import NetworkGroup
from fullrank.networks.fused.unit_batch import STATISTICS, Passes, UnitBatch, UnitBatches
from fullrank.networks.parameters import ALIGNMENT, aligned
from fullrank.replay.layout import Layout

BLOCK_COLUMNS = {"cpu": 256, "cuda": 2**20}
"""Maximum number of transitions in a block; wider networks raise it to their width."""

SHORT = 256
"""Up to this many columns a row needs no odd multiple of 16: it is too short for cache conflicts.
"""


def block_columns(size: int, *, hidden: int, device: torch.device) -> int:
    """Return the columns of each block into which ``size`` transitions are cut."""
    count = -(-size // max(hidden, BLOCK_COLUMNS[device.type]))
    columns = -(-size // (count * ALIGNMENT)) * ALIGNMENT
    return columns if columns <= SHORT else aligned(columns)


class ColumnBlock:
    """Preallocated buffers for one block; D = entries of all observations and all actions.

    Attributes:
        joint_rows: (observations, actions, ones), shape (columns, D + 1), with aligned rows.
        joint: View of its transpose, shape (D + 1, columns).
        next_rows: (next observations, target actions, ones); the caller writes the actions.
        next_joint: View of its transpose.
        reward: Rewards, shape (M, 1, columns), like the following attributes.
        continues: 1 where the agent did not reach a terminal state, else 0.
        weight: Weight of the transition; 0 where the agent did not act.
        acts_next: 1 where the agent acted and did not reach a terminal state, or where it
            comes back, else 0.
    """

    def __init__(self, layout: Layout, facts: Tensor, *, device: torch.device) -> None:
        self.reward, self.continues, self.weight, self.acts_next = facts.unsqueeze(2)
        self._joint, self._next = slice(0, layout.action.stop), layout.next_observation
        inputs, columns = layout.action.stop + 1, facts.shape[2]
        padded = torch.zeros(2, columns, aligned(inputs), device=device)
        padded[:, :, inputs - 1] = 1.0
        self.joint_rows, self.next_rows = padded[:, :, :inputs]
        self.joint, self.next_joint = self.joint_rows.t(), self.next_rows.t()
        self._observed = self.next_rows[:, layout.observation]

    def load(self, rows: Tensor) -> None:
        """Copy the joint parts of packed transitions, shape (<= columns, row_size)."""
        size = rows.shape[0]
        self.joint_rows[:size, :-1] = rows[:, self._joint]
        self._observed[:size] = rows[:, self._next]


class Minibatch:
    """Preallocated buffers for B transitions.

    Args:
        layout: Layout of a transition.
        size: B.
        hidden: Width of the networks.
        device: Device of the buffers.
        transition: Weight of a transition in which an agent acted; None: 1 / their number.

    Attributes:
        size: B.
        blocks: Blocks with equal numbers of columns.
        columns: Columns of one block.
        width: Columns of all blocks together.
    """

    def __init__(
        self,
        layout: Layout,
        size: int,
        *,
        hidden: int,
        device: torch.device,
        transition: float | None = None,
    ) -> None:
        self._layout, self._device, self.size = layout, device, size
        self._transition = transition
        self.columns = block_columns(size, hidden=hidden, device=device)
        starts = range(0, size, self.columns)
        self.width = self.columns * len(starts)
        facts = torch.zeros(4, layout.agents, self.width, device=device)
        self._facts = facts[:, :, :size]
        self.blocks = [
            ColumnBlock(layout, part, device=device) for part in facts.chunk(len(starts), dim=2)
        ]

    def load(self, rows: FloatArray) -> None:
        """Copy packed transitions, shape (size, row_size)."""
        batch = torch.from_numpy(np.require(rows, requirements="W")).to(self._device)
        reward, continues, weight, acts_next = self._facts
        reward.copy_(batch[:, self._layout.reward].t())
        terminated = batch[:, self._layout.terminated].t()
        torch.sub(1.0, terminated, out=continues)
        weight.copy_(batch[:, self._layout.alive].t())
        torch.sub(weight, terminated, out=acts_next).abs_()
        if self._transition is None:
            weight.div_(weight.sum(1, keepdim=True).clamp_min_(1.0))
        else:
            weight.mul_(self._transition)
        for start, block in zip(range(0, self.size, self.columns), self.blocks, strict=True):
            block.load(batch[start : start + self.columns])


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


class FusedGradients:
    """Updates batched over agents; subclasses supply the critics' inputs.

    Args:
        groups: All agents, with the broadcast parameters.
        weights: Hyperparameters of the losses.
        seed: The run's seed.
    """

    def __init__(self, groups: Sequence[NetworkGroup], weights: LossWeights, *, seed: int) -> None:
        self._groups, self._weights, self._seed = groups, weights, seed
        self._after = 2 * len(STATISTICS) + (weights.transition is not None)
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
        score = upper(unit_batch.critic, passes.first, passes.critic, torch.empty_like(weight))
        backward(unit_batch.critic, -weight, passes.critic)
        below = passes.critic.below
        action_gradient = torch.bmm(buffers.action_weights.transpose(1, 2), below)
        gradient = head.gradient(outputs, actions, action_gradient)
        penalty = self._weights.logit_penalty / unit_batch.group.policy.outputs
        gradient.addcmul_(outputs, weight, value=2.0 * penalty)
        size = outputs.square().sum(1, keepdim=True)
        buffers.actor_losses.add_(size.mul_(penalty).sub_(score).mul_(weight))
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

    def _updates_in(self, unit_batch: UnitBatch) -> Iterator[FloatArray]:
        """Return each unit's update: gradient, snapped; place of a weight, if any; statistics.

        Nothing overwrites them. The buffers may be overwritten once the updates are read, and on
        CUDA at once.
        """
        gradient = unit_batch.buffers.gradient[:, : unit_batch.group.size]
        sums = unit_batch.buffers.terms.sum(3, dtype=torch.float64)
        if snaps_on(self._device):  # as ``snap``, to the bit
            gradient = torch.nn.functional.pad(gradient, (0, self._after)).mul_(1.0 / GRID)
            gradient.round_().mul_(GRID).add_(0.0)
        return self._sealed(HostCopy(gradient), HostCopy(sums))

    def _sealed(self, gradients: HostCopy, sums: HostCopy) -> Iterator[FloatArray]:
        """Yield the updates of copies, waiting for these when the first is wanted."""
        by_unit = np.asarray(sums.array(), np.float64).reshape(len(STATISTICS), -1).T
        for row, statistics in zip(gradients.array(), encoded(by_unit), strict=True):
            update = row if snaps_on(self._device) else _snapped(row, after=self._after)
            update[len(update) - len(statistics) :] = statistics
            yield update

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return kernels.fingerprint(self.kernel, self._device)


def snaps_on(device: torch.device) -> bool:
    """Return whether updates are snapped on their device, before they are copied to the host."""
    return device.type == "cuda"


def encoded(shares: NDArray[np.float64]) -> FloatArray:
    """Split statistics, shape (..., n), into multiples of 2^-10 and rests, (..., 2 n), snapped.

    A number that is not finite is clamped; if its gradient is not finite, that stops the run.
    """
    finite = np.fmax(np.fmin(shares, BEYOND), -BEYOND)
    pairs = np.empty((*shares.shape, 2))
    coarse = np.rint(finite / FINE) * FINE
    pairs[..., 0], pairs[..., 1] = coarse / COARSE, (finite - coarse) / FINE
    entries = np.fmax(np.fmin(pairs, LIMIT), -LIMIT).astype(np.float32)
    return snap(entries.reshape(*shares.shape[:-1], 2 * shares.shape[-1]))


def weigh(update: FloatArray, size: int, weight: float, *, factor: float) -> None:
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
        gradient *= np.float32(factor)
        snap(gradient, out=gradient)
    fits = not LIMIT < max(gradient.max(), -gradient.min()) < np.inf
    if not fits:
        gradient[:] = 0.0
    update[size] = weight * factor if fits else -LIMIT


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
