"""Perceptrons with two hidden layers, batched over units, with hand-written passes.

Activations lie feature by feature, shape (units, features, columns), a column being one transition.
Hidden layers add b and rectify in place: a row of ones for b would prevent contiguous activations,
and products of 65 rows are slow. Only critic inputs end in a row of ones, so that their first layer
is the single matrix [W | b].

The number of units in a call does not enter a product's shape: every product is a ``bmm`` with one
matrix per unit. docs/adr/0006 lists the other measured forms, and those that break bit equality.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

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
    torch.bmm(weights.first.weight, inputs, out=activations.h1).add_(weights.first.bias)
    return upper(weights, activations.h1, activations, out)


def upper(weights: Weights, first: Tensor, activations: Activations, out: Tensor) -> Tensor:
    """Compute the outputs from the pre-activation of the first layer."""
    hidden(weights, first, activations)
    return torch.baddbmm(weights.third.bias, weights.third.weight, activations.h2, out=out)


def hidden(weights: Weights, first: Tensor, activations: Activations) -> None:
    """Compute both hidden layers from the first pre-activation, which may be ``activations.h1``."""
    torch.clamp_min(first, 0.0, out=activations.h1)
    torch.bmm(weights.second.weight, activations.h1, out=activations.h2).add_(weights.second.bias)
    activations.h2.clamp_min_(0.0)


def backward(weights: Weights, output_gradient: Tensor, activations: Activations) -> None:
    """Compute the gradients at both pre-activations: ``second`` (layer 2), ``below`` (layer 1)."""
    if output_gradient.shape[1] == 1:  # several times faster than a product of depth 1
        torch.mul(weights.third_back, output_gradient, out=activations.second)
    else:
        torch.bmm(weights.third_back, output_gradient, out=activations.second)
    _mask(activations.second, activations.h2)
    torch.bmm(weights.second_back, activations.second, out=activations.below)
    _mask(activations.below, activations.h1)


def _mask(gradient: Tensor, relu: Tensor) -> None:
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
    out.weight.baddbmm_(gradient, inputs, beta=beta)
    out.bias.add_(gradient.sum(2, keepdim=True))
