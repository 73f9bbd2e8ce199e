"""Adam and Polyak averaging over flat parameter rows, block by block.

Kingma and Ba: Adam, ICLR 2015, with the bias correction and the order of operations of
``torch.optim.Adam``. A block's parameters, moments and targets are read once and stay in cache.
"""

from dataclasses import dataclass

from torch import Tensor

BLOCK = 2**16
"""Entries of a block: seven such buffers stay within a megabyte or two of cache."""


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
        units, size = gradient.shape
        height = max(1, BLOCK // size)
        for row in range(0, units, height):
            for column in range(0, size, BLOCK):
                block = (slice(row, row + height), slice(column, min(column + BLOCK, size)))
                self._step(gradient[block], adam, count, block)

    def _step(self, gradient: Tensor, adam: Adam, count: int, block: tuple[slice, slice]) -> None:
        online, moment = self.online[block], self.moment[block]
        second_moment = self.second_moment[block]
        gradient = gradient.to(online.device)
        moment.lerp_(gradient, 1 - adam.decay)
        second_moment.mul_(adam.second_decay)
        second_moment.addcmul_(gradient, gradient, value=1 - adam.second_decay)
        spread = second_moment.sqrt().div_((1 - adam.second_decay**count) ** 0.5)
        rate = adam.learning_rate / (1 - adam.decay**count)
        online.addcdiv_(moment, spread.add_(adam.epsilon), value=-rate)
        self.target[block].lerp_(online, adam.target_rate)
