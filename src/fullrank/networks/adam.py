"""Adam and Polyak averaging over flat parameter rows, block by block.

Kingma and Ba: Adam, ICLR 2015, by the kernel of ``torch.optim.Adam(fused=True)``, which reads and
writes parameters and moments once. The targets follow while a block's parameters are in cache.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 2**17
"""Entries of a block: its parameters stay within half a megabyte of cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Hyperparameters; ``target_rate`` is the weight of the new parameters in the target."""

    learning_rate: float
    target_rate: float
    decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8


@dataclass(frozen=True, slots=True)
class Rows:
    """One optimised set of rows, each of shape (units, size)."""

    online: Tensor
    target: Tensor
    moment: Tensor
    second_moment: Tensor

    def step(self, gradient: Tensor, adam: Adam, *, count: int) -> None:
        """Move ``online`` along a gradient, then ``target`` towards ``online``.

        Args:
            gradient: Shape (units, <= size); columns beyond it stay as they are.
            adam: Hyperparameters.
            count: How many steps were taken, this one included.
        """
        steps = torch.full((), float(count), device=self.online.device)
        units, size = gradient.shape
        for unit in range(units):
            for start in range(0, size, BLOCK):
                block = (unit, slice(start, min(start + BLOCK, size)))
                self._step(gradient[block], adam, steps, block)

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
