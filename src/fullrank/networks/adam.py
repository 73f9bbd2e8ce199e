"""Adam and Polyak averaging over flat parameter rows, block by block.

Kingma and Ba: Adam, ICLR 2015, with the kernel of ``torch.optim.Adam(fused=True)``, which reads and
writes parameters and moments once. Targets are updated while a block's parameters are in cache.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 2**17
"""Entries of a block, whose parameters take half a megabyte of cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Hyperparameters of Adam; ``target_rate`` is the weight of new parameters in the targets."""

    learning_rate: float
    target_rate: float
    decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8


@dataclass(frozen=True, slots=True)
class AdamState:
    """Parameters, targets and moments, each of shape (units, size)."""

    online: Tensor
    target: Tensor
    moment: Tensor
    second_moment: Tensor

    def step(self, gradient: Tensor, adam: Adam, *, count: int) -> None:
        """Move ``online`` along a gradient, then ``target`` towards ``online``.

        Args:
            gradient: Gradient, shape (units, <= size); columns beyond it are unchanged.
            adam: Hyperparameters.
            count: Number of steps, including this one.
        """
        steps = torch.full((), float(count), device=self.online.device)
        units, size = gradient.shape
        for unit in range(units):
            for start in range(0, size, BLOCK):
                block = (unit, slice(start, min(start + BLOCK, size)))
                self._step(gradient[block], adam, steps, block)

    def part(self, rows: slice) -> "AdamState":
        """View some units."""
        return AdamState(
            self.online[rows], self.target[rows], self.moment[rows], self.second_moment[rows]
        )

    def follow(self, adam: Adam, columns: slice, *, size: int) -> None:
        """Move ``target`` towards ``online`` in some columns, with the bits of ``step``.

        The bits of an entry may depend on its place in a block, so whole blocks are moved.
        """
        for start in range(0, size, BLOCK):
            stop = min(start + BLOCK, size)
            if start < columns.stop and columns.start < stop:
                for target, online in zip(self.target, self.online, strict=True):
                    target[start:stop].lerp_(online[start:stop], adam.target_rate)

    def _step(self, gradient: Tensor, adam: Adam, steps: Tensor, block: tuple[int, slice]) -> None:
        online = self.online[block]
        torch._fused_adam_(
            [online],
            [gradient.to(online.device)],
            [self.moment[block]],
            [self.second_moment[block]],
            [],
            [steps],
            lr=adam.learning_rate,
            beta1=adam.decay,
            beta2=adam.second_decay,
            weight_decay=0.0,
            eps=adam.epsilon,
            amsgrad=False,
            maximize=False,
        )
        self.target[block].lerp_(online, adam.target_rate)
