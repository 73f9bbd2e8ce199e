"""Perceptrons with two hidden layers, many units at once, forward and backward by hand.

Activations lie feature by feature, shape (units, features, columns), a column being one transition.
Each layer's input ends in a row of ones, so that a layer is one matrix [W | b], its product is the
whole affine map, and the gradient of b falls out of the same product as that of W.

The width of a call never enters a product's shape: every product is a ``bmm`` with one fixed matrix
per unit. docs/adr/0006 says which other forms were measured and break bit equality.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

ALIGNMENT = 16
"""float32 entries in 64 bytes: every unit's slice starts on such a boundary."""


def aligned(size: int) -> int:
    """``size`` rounded up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


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
        """Views of the three layers of each flat row."""
        first, second, third = self.layers
        return first.of(rows), second.of(rows), third.of(rows)


Weights: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""One tensor per layer, shape (units, outputs, inputs + 1)."""


class Tape(NamedTuple):
    """What a forward pass leaves for the backward pass; overwritten by the next pass.

    ``first`` (pre-activation of layer 1), ``second`` and ``below`` have shape (units, hidden,
    columns); ``h1`` and ``h2`` (units, hidden + 1, columns) end in ones.
    """

    first: Tensor
    second: Tensor
    below: Tensor
    h1: Tensor
    h2: Tensor


def make_tape(units: int, hidden: int, columns: int, device: torch.device) -> Tape:
    """Buffers of a pass over so many units."""
    flat = [torch.zeros(units, hidden, columns, device=device) for _ in range(3)]
    ended = [torch.ones(units, hidden + 1, columns, device=device) for _ in range(2)]
    return Tape(*flat, *ended)


def forward(weights: Weights, inputs: Tensor, tape: Tape, out: Tensor) -> Tensor:
    """Outputs, shape (units, outputs, columns), from inputs (units, inputs + 1, columns)."""
    torch.bmm(weights[0], inputs, out=tape.first)
    hidden(weights, tape)
    return torch.bmm(weights[2], tape.h2, out=out)


def hidden(weights: Weights, tape: Tape) -> None:
    """Both hidden layers, from the pre-activation of the first."""
    torch.clamp_min(tape.first, 0.0, out=tape.h1[:, :-1])
    torch.bmm(weights[1], tape.h1, out=tape.second)
    torch.clamp_min(tape.second, 0.0, out=tape.h2[:, :-1])


def backward(weights: Weights, output_gradient: Tensor, tape: Tape) -> None:
    """Gradients at both pre-activations: of layer 2 into ``second``, of layer 1 into ``below``."""
    masked = torch.ops.aten.threshold_backward.grad_input
    torch.bmm(_transposed(weights[2]), output_gradient, out=tape.second)
    masked(tape.second, tape.h2[:, :-1], 0.0, grad_input=tape.second)
    torch.bmm(_transposed(weights[1]), tape.second, out=tape.below)
    masked(tape.below, tape.h1[:, :-1], 0.0, grad_input=tape.below)


def weight_gradients(output_gradient: Tensor, tape: Tape, inputs: Tensor, out: Weights) -> None:
    """Gradients of the three layers after ``backward``.

    Args:
        output_gradient: Shape (units, outputs, columns).
        tape: Of the forward and the backward pass.
        inputs: The first layer's input, transposed: shape (units, columns, inputs + 1).
        out: Contiguous, each shaped as its layer.
    """
    torch.bmm(tape.below, inputs, out=out[0])
    torch.bmm(tape.second, tape.h1.transpose(1, 2), out=out[1])
    torch.bmm(output_gradient, tape.h2.transpose(1, 2), out=out[2])


def _transposed(weights: Tensor) -> Tensor:
    return weights[:, :, :-1].transpose(1, 2)
