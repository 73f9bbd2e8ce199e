"""Clipping of each variable of each unit to a maximum L2 norm.

A norm beyond float32, which entries above 1.8e19 have, is infinite and would scale the variable to
nothing. Such a variable is zero but for ``VANISHED`` in its first entry, which the optimiser finds
and says (docs/adr/0109).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.common.updates import GRID
from fullrank.networks.fused.mlp import Linear

VANISHED = -GRID
"""First entry of a variable whose norm overflowed; all others are zero."""


def mark_vanished(variable: Tensor, scale: Tensor) -> None:
    """Mark a variable that was scaled by 0, in place."""
    variable[(0,) * variable.dim()] += (scale == 0.0) * VANISHED


def take_mark(variable: Tensor) -> bool:
    """Take the mark off a variable, in place; False if it has none."""
    first = variable[(0,) * variable.dim()]
    if variable.numel() < 2 or first != VANISHED or variable.count_nonzero() != 1:
        return False
    first.zero_()
    return True


class _Layer(NamedTuple):
    """Views of one layer's gradient, and buffers for the norms of its rows."""

    weight: Tensor
    bias: Tensor
    by_row: Tensor
    lengths: Tensor


class Clipper:
    """Clip fixed buffers; built once, because creating views costs more than the arithmetic.

    Args:
        layers: Gradient of each layer.
        out: Buffers for the clipped gradients, of the same shapes.
        norm: Maximum L2 norm of each variable; None: gradients are copied as they are.
    """

    def __init__(
        self, layers: Sequence[Linear], out: Sequence[Linear], *, norm: float | None
    ) -> None:
        units, device = len(layers[0].weight), layers[0].weight.device
        self._norm = None if norm is None else torch.tensor(norm, device=device)
        self._lengths = torch.empty(units, 2 * len(layers), device=device)
        self._marks = torch.empty_like(self._lengths)
        self._layers: list[_Layer] = []
        self._products: list[tuple[Tensor, Tensor, Tensor]] = []
        for index, (layer, target) in enumerate(zip(layers, out, strict=True)):
            lengths = self._lengths[:, 2 * index : 2 * index + 2]
            by_row = torch.empty(units, 2, layer.weight.shape[1], device=device)
            self._layers.append(_Layer(layer.weight, layer.bias[:, :, 0], by_row, lengths))
            scale = lengths[:, :, None, None]
            self._products.append((layer.weight, scale[:, 0], target.weight))
            self._products.append((layer.bias, scale[:, 1], target.bias))
        self._firsts = [out[:, 0, 0] for _, _, out in self._products]

    def clip(self) -> None:
        """Scale every variable by min(1, norm / its length), into ``out``.

        Lengths are computed in two steps, along rows and then across them: the reduction of a
        whole matrix to one number is split among threads, which changes its bits.
        """
        if self._norm is None:
            for variable, _, out in self._products:
                out.copy_(variable)
            return
        for layer in self._layers:
            torch.linalg.vector_norm(layer.weight, dim=2, out=layer.by_row[:, 0])
            layer.by_row[:, 1] = layer.bias
            torch.linalg.vector_norm(layer.by_row, dim=2, out=layer.lengths)
        torch.div(self._norm, self._lengths.clamp_min_(self._norm), out=self._lengths)
        for variable, scale, out in self._products:
            torch.mul(variable, scale, out=out)
        torch.eq(self._lengths, 0.0, out=self._marks).mul_(VANISHED)
        torch._foreach_add_(self._firsts, [*self._marks.unbind(1)])
