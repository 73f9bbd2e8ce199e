"""Products of the rows of several units with shared matrices, and of units' rows with each other.

One product of all rows at once is faster than one for each unit, by up to two where a unit has few
rows. A library may choose another order of summation for another number of rows, so the form with
one product is used only where it gives, for every number of units, the bits of separate products.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Blocks(NamedTuple):
    """Rows of units in products: a unit has ``rows`` in each of some steps."""

    rows: int
    """Rows of a unit in one step, which lie together."""
    steps: int
    """Number of steps in a product."""
    units: int
    """Most units in a product."""


def multiply(
    inputs: Tensor, weights: Tensor, out: Tensor, *, blocks: Blocks, beta: float = 0.0
) -> None:
    """Multiply rows by the matrix of each network; see ``product``."""
    product(inputs, weights, out, blocks=blocks, beta=beta)(inputs, out)


def product(
    inputs: Tensor, weights: Tensor, out: Tensor, *, blocks: Blocks, beta: float = 0.0
) -> Callable[[Tensor, Tensor], object]:
    """Return a call that multiplies rows by the matrix of each network.

    No bit of a row depends on the number of units.

    Args:
        inputs: Example of the inputs, shape (networks, rows of all units, depth).
        weights: Shape (networks, depth, outputs).
        out: Example of the results, shape (networks, rows of all units, outputs).
        blocks: Rows of units.
        beta: 0, or 1 to add the product to the results.
    """
    strides = inputs.stride(1), weights.stride()[1:], out.stride(1)
    threads = torch.get_num_threads()
    shape, device = weights.shape, inputs.device
    if is_steady(blocks, shape, strides, beta=beta, threads=threads, device=device):
        return lambda left, sums: sums.baddbmm_(left, weights, beta=beta)
    return lambda left, sums: multiply_apart(left, weights, sums, rows=blocks.rows, beta=beta)


def multiply_apart(
    inputs: Tensor, weights: Tensor, out: Tensor, *, rows: int, beta: float = 0.0
) -> None:
    """Multiply each unit's rows in products of their own; see ``product``."""
    for left, matrix, sums in zip(inputs, weights, out, strict=True):
        left, sums = (torch.unflatten(part, 0, (-1, rows)) for part in (left, sums))
        sums.baddbmm_(left, matrix.expand(len(left), -1, -1), beta=beta)


def by_unit(rows: Tensor, units: int, buffer: Tensor) -> Tensor:
    """Arrange (steps, units x R, size) as (units, steps x R, size).

    Args:
        rows: Contiguous; one unit's are viewed, several units' copied.
        units: Number of units.
        buffer: Flat, for the copy.
    """
    own = torch.unflatten(rows, 1, (units, -1)).transpose(0, 1)
    if units > 1:
        own = buffer[: rows.numel()].view(own.shape).copy_(own)
    return own.flatten(1, 2)


def add_gradient(weight: Tensor, inputs: Tensor, gradient: Tensor) -> None:
    """Add a layer's gradient in one chunk, from its inputs and the gradient at its outputs.

    Args:
        weight: Shape (units, inputs, outputs).
        inputs: Shape (units, rows, inputs).
        gradient: Shape (units, rows, outputs).
    """
    weight.baddbmm_(inputs.transpose(1, 2), gradient)


@cache
def is_steady(
    blocks: Blocks,
    shape: tuple[int, int, int],
    strides: tuple[int, tuple[int, int], int],
    *,
    beta: float,
    threads: int,
    device: torch.device,
) -> bool:
    """Compare one product of all rows with separate ones, for all numbers of units.

    Args:
        blocks: Rows of units.
        shape: Networks, depth and outputs.
        strides: Distance of the rows, strides of the shared matrix, and distance of the results.
        beta: Factor of the previous result.
        threads: Number of torch threads, on which the library's choice may depend.
        device: Device of the products.
    """
    networks, depth, outputs = shape
    distance, (down, across), apart_by = strides
    generator = np.random.Generator(np.random.Philox(key=2))

    def draw(*size: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(size, dtype=np.float32)).to(device)

    own = blocks.rows * blocks.steps
    inputs, before = (draw(networks, blocks.units * own, width) for width in (distance, apart_by))
    matrix = draw(networks, depth, down) if across == 1 else draw(networks, outputs, across).mT
    matrix, apart = matrix[:, :depth, :outputs], before.clone()[..., :outputs]
    multiply_apart(inputs[..., :depth], matrix, apart, rows=blocks.rows, beta=beta)
    for units in range(min(blocks.units, threads), blocks.units + 1):
        left = inputs[:, : units * own].contiguous()[..., :depth]
        together = before[:, : units * own].clone()[..., :outputs]
        together.baddbmm_(left, matrix, beta=beta)
        if not torch.equal(together, apart[:, : units * own]):
            return False
    return True
