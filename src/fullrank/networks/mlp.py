"""Perceptrons with two hidden layers, many units at once, forward and backward by hand.

Activations lie feature by feature, shape (units, features, columns), a column being one transition.
Each layer's input ends in a row of ones, so that a layer is one matrix [W | b], its product is the
whole affine map, and the gradient of b falls out of the same product as that of W.

The width of a call does not enter a product's shape: every product is a ``bmm`` with one matrix per
unit. docs/adr/0006 says which other forms were measured, and which of them break bit equality.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

ALIGNMENT = 16
"""float32 entries in 64 bytes: every unit's slice starts on such a boundary."""

_threshold_backward = torch.ops.aten.threshold_backward.grad_input


def aligned(size: int) -> int:
    """``size`` rounded up to an odd multiple of ``ALIGNMENT``.

    An odd one, because rows whose length is a power of two fall on the same cache sets: weight
    gradients over 1024 columns take 1.3 times as long as over 1040.
    """
    return (-(-size // ALIGNMENT) | 1) * ALIGNMENT


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
        first, second, third = (layer.of(rows) for layer in self.layers)
        return Weights(
            first,
            second,
            third,
            second[:, :, :-1].transpose(1, 2),
            third[:, :, :-1].transpose(1, 2),
        )


class Weights(NamedTuple):
    """The layers [W | b] of some units, and W transposed where gradients pass through it."""

    first: Tensor
    second: Tensor
    third: Tensor
    second_back: Tensor
    third_back: Tensor


class Tape:
    """What a forward pass leaves for the backward pass; overwritten by the next pass.

    Attributes:
        first: Pre-activation of layer 1, shape (units, hidden, columns).
        second: Of layer 2; after ``backward``, the gradient there.
        below: After ``backward``, the gradient at ``first``.
        h1: Output of layer 1 and ones, shape (units, hidden + 1, columns).
        h2: Output of layer 2 and ones.
    """

    def __init__(self, first: Tensor, second: Tensor, below: Tensor) -> None:
        units, hidden, columns = first.shape
        self.first, self.second, self.below = first, second, below
        self.h1, self.h2 = (first.new_ones(units, hidden + 1, columns) for _ in range(2))
        self.relu1, self.relu2 = self.h1[:, :-1], self.h2[:, :-1]
        self.h1_rows, self.h2_rows = self.h1.transpose(1, 2), self.h2.transpose(1, 2)


def forward(weights: Weights, inputs: Tensor, tape: Tape, out: Tensor) -> Tensor:
    """Outputs, shape (units, outputs, columns), from inputs (units, inputs + 1, columns)."""
    torch.bmm(weights.first, inputs, out=tape.first)
    return upper(weights, tape, out)


def upper(weights: Weights, tape: Tape, out: Tensor) -> Tensor:
    """Outputs from the pre-activation of the first layer on."""
    hidden(weights, tape)
    return torch.bmm(weights.third, tape.h2, out=out)


def hidden(weights: Weights, tape: Tape) -> None:
    """Both hidden layers, from the pre-activation of the first."""
    torch.clamp_min(tape.first, 0.0, out=tape.relu1)
    torch.bmm(weights.second, tape.h1, out=tape.second)
    torch.clamp_min(tape.second, 0.0, out=tape.relu2)


def backward(weights: Weights, output_gradient: Tensor, tape: Tape) -> None:
    """Gradients at both pre-activations: of layer 2 into ``second``, of layer 1 into ``below``."""
    torch.bmm(weights.third_back, output_gradient, out=tape.second)
    _mask(tape.second, tape.relu2)
    torch.bmm(weights.second_back, tape.second, out=tape.below)
    _mask(tape.below, tape.relu1)


def _mask(gradient: Tensor, relu: Tensor) -> None:
    """Zero where the unit is off, in place."""
    _threshold_backward(gradient, relu, 0.0, grad_input=gradient)


def upper_gradients(
    output_gradient: Tensor, tape: Tape, out: Sequence[Tensor], *, beta: float
) -> None:
    """Gradients of layers 2 and 3 after ``backward``; that of layer 1 is ``below`` times its input.

    Args:
        output_gradient: Shape (units, outputs, columns).
        tape: Of the forward and the backward pass.
        out: Contiguous, one per layer.
        beta: The gradients are added to so much of ``out``.
    """
    out[1].baddbmm_(tape.second, tape.h1_rows, beta=beta)
    out[2].baddbmm_(output_gradient, tape.h2_rows, beta=beta)
