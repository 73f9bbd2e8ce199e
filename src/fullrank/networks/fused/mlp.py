"""Perceptrons with two hidden layers, batched over units, with hand-written passes, and clipping.

Activations lie feature by feature, shape (units, features, columns), a column being one transition.
Hidden layers add b and rectify in place: a row of ones for b would prevent contiguous activations,
and products of 65 rows are slow. Only critic inputs end in a row of ones, so that their first layer
is the single matrix [W | b].

The number of units in a call does not enter a product's shape: every product is batched, with one
matrix per unit. docs/adr/0006 lists the other measured forms, and those that break bit equality.

Each variable of each unit is clipped to a maximum L2 norm. A norm beyond float32, which entries
above 1.8e19 have, is infinite and would scale the variable to nothing. Such a variable is zero but
for ``VANISHED`` in its first entry, which the optimiser finds and says (docs/adr/0109).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fullrank.common.updates import GRID
from fullrank.networks.fused.products import batched_product, lengths, total

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class Linear(NamedTuple):
    """One layer of several units, or its gradient.

    Attributes:
        weight: W, shape (units, outputs, inputs).
        bias: b, shape (units, outputs, 1).
    """

    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    """Place of a layer [W | b], shape (outputs, inputs + 1), row-major from ``start``."""

    start: int
    outputs: int
    inputs: int

    @property
    def end(self) -> int:
        """Index one past the last entry."""
        return self.start + self.outputs * (self.inputs + 1)

    def of(self, rows: Tensor) -> Tensor:
        """View flat rows, shape (units, >= end), as (units, outputs, inputs + 1)."""
        return rows[:, self.start : self.end].view(-1, self.outputs, self.inputs + 1)

    def parts(self, rows: Tensor) -> Linear:
        """Return W and b as views of flat rows."""
        return parts(self.of(rows))


def parts(matrix: Tensor) -> Linear:
    """Return W and b as views of [W | b]."""
    return Linear(matrix[:, :, :-1], matrix[:, :, -1:])


@dataclass(frozen=True, slots=True)
class Mlp:
    """Place of a perceptron inputs -> hidden -> hidden -> outputs (ReLU, linear) in a row."""

    start: int
    inputs: int
    hidden: int
    outputs: int

    @property
    def layers(self) -> tuple[Layer, Layer, Layer]:
        """Return the three layers from the input up."""
        first = Layer(self.start, self.hidden, self.inputs)
        second = Layer(first.end, self.hidden, self.hidden)
        return first, second, Layer(second.end, self.outputs, self.hidden)

    @property
    def end(self) -> int:
        """Index one past the last entry."""
        return self.layers[-1].end

    def weights(self, rows: Tensor) -> "Weights":
        """Return views of the layers in flat rows, shape (units, >= end)."""
        first, second, third = (layer.parts(rows) for layer in self.layers)
        return Weights(
            self.layers[0].of(rows),
            first,
            second,
            third,
            second.weight.transpose(1, 2),
            third.weight.transpose(1, 2),
        )


class Weights(NamedTuple):
    """The layers of several units, and W transposed where gradients pass through it.

    ``affine`` is [W | b] of the first layer, for inputs that end in a row of ones.
    """

    affine: Tensor
    first: Linear
    second: Linear
    third: Linear
    second_back: Tensor
    third_back: Tensor


class Activations:
    """Results of a forward pass that the backward pass reads; the next pass overwrites them.

    Attributes:
        h1: Output of layer 1, shape (units, hidden, columns).
        h2: Output of layer 2, same shape.
        second: After ``backward``, the gradient at the pre-activation of layer 2.
        below: After ``backward``, the gradient at the pre-activation of layer 1.
    """

    def __init__(self, second: Tensor, below: Tensor) -> None:
        self.second, self.below = second, below
        self.h1, self.h2 = torch.empty_like(second), torch.empty_like(second)
        self._h1_rows, self._h2_rows = self.h1.transpose(1, 2), self.h2.transpose(1, 2)

    def upper_gradients(
        self, output_gradient: Tensor, second: Linear, third: Linear, *, beta: float
    ) -> None:
        """Add the gradients of layers 2 and 3 after ``backward``; see ``accumulate``.

        The gradient of layer 1 is ``below`` times its input.
        """
        accumulate(second, self.second, self._h1_rows, beta=beta)
        accumulate(third, output_gradient, self._h2_rows, beta=beta)


def forward(weights: Weights, inputs: Tensor, activations: Activations, out: Tensor) -> Tensor:
    """Map inputs (units, inputs, columns) to outputs (units, outputs, columns)."""
    batched_product(weights.first.weight, inputs, activations.h1).add_(weights.first.bias)
    return upper(weights, activations.h1, activations, out)


def upper(weights: Weights, first: Tensor, activations: Activations, out: Tensor) -> Tensor:
    """Compute the outputs from the pre-activation of the first layer."""
    hidden(weights, first, activations)
    out.copy_(weights.third.bias)
    return batched_product(weights.third.weight, activations.h2, out, beta=1.0)


def hidden(weights: Weights, first: Tensor, activations: Activations) -> None:
    """Compute both hidden layers from the first pre-activation, which may be ``activations.h1``."""
    torch.clamp_min(first, 0.0, out=activations.h1)
    below = activations.h1
    batched_product(weights.second.weight, below, activations.h2).add_(weights.second.bias)
    activations.h2.clamp_min_(0.0)


def backward(weights: Weights, output_gradient: Tensor, activations: Activations) -> None:
    """Compute the gradients at both pre-activations: ``second`` (layer 2), ``below`` (layer 1)."""
    if output_gradient.shape[1] == 1:  # several times faster than a product of depth 1
        torch.mul(weights.third_back, output_gradient, out=activations.second)
    else:
        batched_product(weights.third_back, output_gradient, activations.second)
    mask(activations.second, activations.h2)
    batched_product(weights.second_back, activations.second, activations.below)
    mask(activations.below, activations.h1)


def mask(gradient: Tensor, relu: Tensor) -> None:
    """Zero the gradient in place where the ReLU is inactive."""
    _threshold_backward(gradient, relu, 0.0, grad_input=gradient)


def accumulate(out: Linear, gradient: Tensor, inputs: Tensor, *, beta: float) -> None:
    """Add a layer's gradient, given the gradient at its outputs.

    Args:
        out: Accumulated gradient; its W is contiguous.
        gradient: Gradient at the outputs, shape (units, outputs, columns).
        inputs: Inputs of the layer, shape (units, columns, inputs).
        beta: Factor of W's previous gradient; b's is always kept in full.
    """
    batched_product(gradient, inputs, out.weight, beta=beta)
    out.bias.add_(total(gradient)[..., None])


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
            lengths(layer.weight, layer.by_row[:, 0])
            layer.by_row[:, 1] = layer.bias
            lengths(layer.by_row, layer.lengths)
        torch.div(self._norm, self._lengths.clamp_min_(self._norm), out=self._lengths)
        for variable, scale, out in self._products:
            torch.mul(variable, scale, out=out)
        torch.eq(self._lengths, 0.0, out=self._marks).mul_(VANISHED)
        torch._foreach_add_(self._firsts, [*self._marks.unbind(1)])
