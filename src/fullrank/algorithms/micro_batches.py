"""Gradients of micro-batches: one autograd call for the episodes of one unit."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fullrank.algorithms.autograd import Networks
from fullrank.algorithms.learner_statistics import STATISTICS_SIZE, update_of
from fullrank.algorithms.trajectories import Trajectories
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.networks.fused import kernels
from fullrank.networks.modules import views
from fullrank.replay.episodes import EpisodeLayout, episodes_in


class Loss(Protocol):
    """Share of the loss that comes from some episodes of a sample of ``steps`` steps."""

    def __call__(self, batch: Trajectories, *, steps: int) -> tuple[Tensor, FloatArray]:
        """Return the scalar share, and that of the learner's statistics."""


def micro_batches(batch_size: int, units: int) -> tuple[range, ...]:
    """Return the numbers of each unit's episodes; the last units may have fewer, or none."""
    width = -(-batch_size // units)
    return tuple(range(batch_size)[unit * width : (unit + 1) * width] for unit in range(units))


class MicroBatchGradients:
    """Gradients of the loss by micro-batch; implements ``Gradients``.

    For teams without hand-written passes. A unit sees its own episodes, padded to the longest of
    them: its bits do not depend on the other units. They depend on ``compute.threads``, as
    autograd's do, which the fingerprint names.

    Args:
        loss: Share of the loss that comes from some episodes.
        nets: Networks at the broadcast parameters.
        layout: Layout of a row.
        batch_size: B, number of episodes of the sample.
        units: M, number of micro-batches.
        scale: Factor of the updates, a power of two.
        limit: Bound to which entries of the updates are clamped.
        device: Device of the parameters.
    """

    def __init__(
        self,
        loss: Loss,
        nets: Networks,
        layout: EpisodeLayout,
        *,
        batch_size: int,
        units: int,
        scale: float,
        limit: float,
        device: torch.device,
    ) -> None:
        self._loss, self._nets, self._layout = loss, nets, layout
        self._episodes = micro_batches(batch_size, units)
        self._scale, self._limit, self._device = scale, limit, device

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        """Compute u_i for each requested unit, one after another; see ``Gradients.compute``."""
        places = episodes_in(batch, self._layout.length)
        steps = len(batch) - len(places)
        for unit in units:
            check_cancelled()
            own = places[self._episodes[unit].start : self._episodes[unit].stop]
            if not own:
                size = self._nets.parameters.groups[0].size + STATISTICS_SIZE
                yield unit, np.zeros(size, np.float32)
                continue
            episodes = [batch[place] for place in own]
            data = Trajectories(episodes, self._layout, device=self._device)
            check_cancelled()
            yield unit, self._update(data, steps)

    def _update(self, batch: Trajectories, steps: int) -> FloatArray:
        """Compute [gradient at each online network], scaled and clamped; statistics; snapped."""
        (group,) = self._nets.parameters.groups
        update = torch.zeros(group.size, device=self._device)
        variables = [
            variable
            for role, columns in group.networks.items()
            for variable in views(getattr(self._nets, role)[0], update[columns])
        ]
        with kernels.DEFAULT.selected():
            loss, shares = self._loss(batch, steps=steps)
            gradients = torch.autograd.grad(loss, [parameter for parameter, _ in variables])
        for gradient, (_, out) in zip(gradients, variables, strict=True):
            out.copy_(gradient)
        update.mul_(self._scale).clamp_(-self._limit, self._limit)
        return update_of(update.cpu().numpy(), shares)

    def fingerprint(self) -> str:
        """Return the numeric identity of this process."""
        return kernels.fingerprint(kernels.DEFAULT, self._device)
