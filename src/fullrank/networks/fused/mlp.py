"""Perceptrons with two hidden layers, many units at once, forward and backward by hand.

Activations lie feature by feature, shape (units, features, columns), a column being one transition.
Hidden activations are rectified where their product lies, and b is added there, too: with a row of
ones for b they could not lie side by side, and products of 65 rows are slow. Only what critics see
ends in a row of ones, so that there [W | b] is one matrix.

The width of a call does not enter a product's shape: every product is a ``bmm`` with one matrix per
unit. docs/adr/0006 says which other forms were measured, and which of them break bit equality.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


class Linear(NamedTuple):
    """A layer of some units, or the gradient there.

    Attributes:
        weight: W, shape (units, outputs, inputs).
        bias: b, shape (units, outputs, 1).
    """

    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    """[W | b]: shape (outputs, inputs + 1), stored row by row from ``start`` in a flat vector."""

    start: int
    outputs: int
    inputs: int

    @property
    def end(self) -> int:
        """One past its last entry."""
        return self.start + self.outputs * (self.inputs + 1)

    def of(self, rows: Tensor) -> Tensor:
        """View of flat rows, shape (units, >= end), as (units, outputs, inputs + 1)."""
        return rows[:, self.start : self.end].view(-1, self.outputs, self.inputs + 1)

    def parts(self, rows: Tensor) -> Linear:
        """W and b, views of flat rows."""
        return parts(self.of(rows))


def parts(matrix: Tensor) -> Linear:
    """W and b, views of [W | b]."""
    return Linear(matrix[:, :, :-1], matrix[:, :, -1:])


@dataclass(frozen=True, slots=True)
class Mlp:
    """Where a perceptron inputs -> hidden -> hidden -> outputs (ReLU, linear) lies in a row."""

    start: int
    inputs: int
    hidden: int
    outputs: int

    @property
    def layers(self) -> tuple[Layer, Layer, Layer]:
        """From the input up."""
        first = Layer(self.start, self.hidden, self.inputs)
        second = Layer(first.end, self.hidden, self.hidden)
        return first, second, Layer(second.end, self.outputs, self.hidden)

    @property
    def end(self) -> int:
        """One past its last entry."""
        return self.layers[-1].end

    def weights(self, rows: Tensor) -> "Weights":
        """Views of flat rows, shape (units, >= end)."""
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
    """The layers of some units, and W transposed where gradients pass through it.

    ``affine`` is [W | b] of the first one, for inputs that end in ones.
    """

    affine: Tensor
    first: Linear
    second: Linear
    third: Linear
    second_back: Tensor
    third_back: Tensor


class Activations:
    """What a forward pass leaves for the backward pass; overwritten by the next pass.

    Attributes:
        h1: Output of layer 1, shape (units, hidden, columns).
        h2: Of layer 2.
        second: After ``backward``, the gradient at the pre-activation of layer 2.
        below: At that of layer 1.
    """

    def __init__(self, second: Tensor, below: Tensor) -> None:
        self.second, self.below = second, below
        self.h1, self.h2 = torch.zeros_like(second), torch.zeros_like(second)
        self._h1_rows, self._h2_rows = self.h1.transpose(1, 2), self.h2.transpose(1, 2)

    def upper_gradients(
        self, output_gradient: Tensor, second: Linear, third: Linear, *, beta: float
    ) -> None:
        """Add the gradients of layers 2 and 3 after ``backward``; see ``accumulate``.

        That of layer 1 is ``below`` times its input.
        """
        accumulate(second, self.second, self._h1_rows, beta=beta)
        accumulate(third, output_gradient, self._h2_rows, beta=beta)


def forward(weights: Weights, inputs: Tensor, activations: Activations, out: Tensor) -> Tensor:
    """Outputs, shape (units, outputs, columns), from inputs (units, inputs, columns)."""
    torch.bmm(weights.first.weight, inputs, out=activations.h1).add_(weights.first.bias)
    return upper(weights, activations.h1, activations, out)


def upper(weights: Weights, first: Tensor, activations: Activations, out: Tensor) -> Tensor:
    """Outputs from the pre-activation of the first layer on."""
    hidden(weights, first, activations)
    return torch.baddbmm(weights.third.bias, weights.third.weight, activations.h2, out=out)


def hidden(weights: Weights, first: Tensor, activations: Activations) -> None:
    """Both hidden layers, from the pre-activation of the first, which may be ``activations.h1``."""
    torch.clamp_min(first, 0.0, out=activations.h1)
    torch.bmm(weights.second.weight, activations.h1, out=activations.h2).add_(weights.second.bias)
    activations.h2.clamp_min_(0.0)


def backward(weights: Weights, output_gradient: Tensor, activations: Activations) -> None:
    """Gradients at both pre-activations: of layer 2 into ``second``, of layer 1 into ``below``."""
    if output_gradient.shape[1] == 1:  # several times as fast as a product of depth 1
        torch.mul(weights.third_back, output_gradient, out=activations.second)
    else:
        torch.bmm(weights.third_back, output_gradient, out=activations.second)
    _mask(activations.second, activations.h2)
    torch.bmm(weights.second_back, activations.second, out=activations.below)
    _mask(activations.below, activations.h1)


def _mask(gradient: Tensor, relu: Tensor) -> None:
    """Zero where the unit is off, in place."""
    _threshold_backward(gradient, relu, 0.0, grad_input=gradient)


def accumulate(out: Linear, gradient: Tensor, inputs: Tensor, *, beta: float) -> None:
    """Add a layer's gradient, from that at its outputs.

    Args:
        out: The gradient so far; W contiguous.
        gradient: At the outputs, shape (units, outputs, columns).
        inputs: Of the layer, shape (units, columns, inputs).
        beta: So much of W's gradient is kept; b's is kept whole.
    """
    out.weight.baddbmm_(gradient, inputs, beta=beta)
    out.bias.add_(gradient.sum(2, keepdim=True))
