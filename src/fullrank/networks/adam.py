"""Update rules over flat parameter rows: Adam with Polyak averaging, and RMSprop.

Kingma and Ba: Adam, ICLR 2015, with the kernel of ``torch.optim.Adam(fused=True)``, which reads and
writes parameters and moments once, block by block, or on CUDA all at once. Targets are updated
while a block's parameters are in cache.

Tieleman and Hinton: Lecture 6.5, COURSERA: Neural Networks for Machine Learning, 2012, with the
semantics of ``torch.optim.RMSprop``; without momentum and centring, epsilon is added to the root.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from fullrank.networks.fused.cuda import Graphs

BLOCK = 2**17
"""Entries of a block, whose parameters take half a megabyte of cache."""

Block: TypeAlias = tuple[int, slice]
"""Columns of a row."""

Rate: TypeAlias = float | Tensor
"""A learning rate; where it changes, a graph reads it on the device."""


def steps_at_once(device: torch.device) -> bool:
    """Return whether one launch moves all rows: on CUDA a launch costs as much as a block."""
    return device.type == "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam:
    """Hyperparameters of Adam; ``target_rate`` is the weight of new parameters in the targets."""

    learning_rate: Rate
    target_rate: float
    decay: float = 0.9
    second_decay: float = 0.999
    epsilon: float = 1e-8

    def at(self, rate: Tensor) -> "Adam":
        """Return the rule at a rate in float64, of which the kernel of CUDA takes float32."""
        return replace(self, learning_rate=rate.float() if rate.is_cuda else rate)


@dataclass(frozen=True, slots=True)
class AdamState:
    """Parameters, targets and moments, each of shape (units, size)."""

    online: Tensor
    target: Tensor
    moment: Tensor
    second_moment: Tensor

    def step(self, gradient: Tensor, adam: Adam, *, count: int | Tensor) -> None:
        """Move ``online`` along a gradient, then ``target`` towards ``online``.

        Args:
            gradient: Gradient, shape (units, <= size); columns beyond it are unchanged.
            adam: Hyperparameters.
            count: Number of steps, including this one; a graph reads it on the device.
        """
        gradient = moved(gradient, self.online.device)
        steps = count
        if not isinstance(steps, Tensor):
            steps = torch.full((), float(count), device=gradient.device)
        for blocks in self._launches(*gradient.shape):
            self._step([gradient[block] for block in blocks], adam, steps, blocks)

    def _launches(self, units: int, size: int) -> Iterator[Sequence[Block]]:
        """Yield the blocks that are moved together."""
        if steps_at_once(self.online.device):
            yield [(unit, slice(0, size)) for unit in range(units)]
            return
        for unit in range(units):
            for start in range(0, size, BLOCK):
                yield [(unit, slice(start, min(start + BLOCK, size)))]

    def norms(self) -> Tensor:
        """Return a number that is not finite if an entry of the state is not, shape ().

        A first moment is infinite only where the second one is. The number may be infinite without
        an entry that is.
        """
        norm = torch.linalg.vector_norm
        total: Tensor = norm(self.online) + norm(self.target) + self.second_moment.sum()
        return total

    def part(self, rows: slice) -> "AdamState":
        """View some units."""
        return AdamState(
            self.online[rows], self.target[rows], self.moment[rows], self.second_moment[rows]
        )

    def follow(self, adam: Adam, columns: slice, *, size: int) -> None:
        """Move ``target`` towards ``online`` in some columns, with the bits of ``step``.

        The bits of an entry may depend on its place in a block, so whole blocks are moved.
        """
        for blocks in self._launches(len(self.online), size):
            touched = [
                (unit, block)
                for unit, block in blocks
                if block.start < columns.stop and columns.start < block.stop
            ]
            if touched:
                self._move_targets([self.online[block] for block in touched], adam, touched)

    def _step(
        self, gradients: list[Tensor], adam: Adam, steps: Tensor, blocks: Sequence[Block]
    ) -> None:
        online = [self.online[block] for block in blocks]
        torch._fused_adam_(
            online,
            gradients,
            [self.moment[block] for block in blocks],
            [self.second_moment[block] for block in blocks],
            [],
            [steps] * len(blocks),
            lr=adam.learning_rate,
            beta1=adam.decay,
            beta2=adam.second_decay,
            weight_decay=0.0,
            eps=adam.epsilon,
            amsgrad=False,
            maximize=False,
        )
        self._move_targets(online, adam, blocks)

    def _move_targets(self, online: list[Tensor], adam: Adam, blocks: Sequence[Block]) -> None:
        torch._foreach_lerp_([self.target[block] for block in blocks], online, adam.target_rate)


class AdamSteps:
    """Steps of several states at once; on CUDA one graph.

    Args:
        adam: Hyperparameters.
        device: Device of the states.
    """

    def __init__(self, adam: Adam, device: torch.device) -> None:
        self._adam, self._device, self._graphs = adam, device, Graphs(device)
        self._gradients = dict[Hashable, list[Tensor]]()

    def step(
        self,
        key: Hashable,
        states: Sequence[AdamState],
        gradients: Sequence[Tensor],
        *,
        count: int,
    ) -> None:
        """Step states along gradients; see ``AdamState.step``.

        Args:
            key: Names the states.
            states: The states.
            gradients: A gradient for each, which graphs read from copies.
            count: Number of steps, including this one.
        """
        if steps_at_once(self._device):
            if key not in self._gradients:
                sizes = [own.shape for own in gradients]
                self._gradients[key] = [torch.empty(size, device=self._device) for size in sizes]
            kept = self._gradients[key]
            for place, own in zip(kept, gradients, strict=True):
                place.copy_(moved(own, self._device))
            gradients = kept

        def compute(steps: Callable[[], Tensor], check_cancelled: Callable[[], None]) -> None:
            own_steps = steps()
            for state, gradient in zip(states, gradients, strict=True):
                state.step(gradient, self._adam, count=own_steps)

        self._graphs.run(
            key, compute, draw=lambda: torch.tensor(float(count)), check_cancelled=lambda: None
        )


def moved(rows: Tensor, device: torch.device) -> Tensor:
    """Copy rows to a device; to CUDA each from page-locked memory, while the next is locked.

    Rows that were computed there stay as they are.
    """
    if device.type != "cuda" or rows.is_cuda:
        return rows.to(device)
    there = torch.empty(rows.shape, dtype=rows.dtype, device=device)
    for row, place in zip(rows, there, strict=True):
        place.copy_(row.pin_memory(), non_blocking=True)
    return there


@dataclass(frozen=True, slots=True, kw_only=True)
class RMSprop:
    """Hyperparameters of RMSprop."""

    learning_rate: Rate
    decay: float = 0.99
    epsilon: float = 1e-5

    def at(self, rate: Tensor) -> "RMSprop":
        """Return the rule at a rate on the device."""
        return replace(self, learning_rate=rate)

    def step(self, online: Tensor, gradient: Tensor, mean_square: Tensor) -> None:
        """Move ``online`` along a gradient and renew the mean square, both in place.

        Products and sums are separate: fused ones round otherwise at the ends of vector loops,
        whose places depend on the number of threads.
        """
        mean_square.mul_(self.decay).add_(gradient.square().mul_(1.0 - self.decay))
        root = mean_square.sqrt().add_(self.epsilon)
        online.sub_(gradient.mul(self.learning_rate).div_(root))
