"""Products of the rows of several units with one shared matrix.

One product of all rows at once is faster than one for each unit, by up to two where a unit has few
rows. A library may choose another order of summation for another number of rows, so the form with
one product is used only where it gives, for every number of units, the bits of separate products.
"""

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor


def multiply(inputs: Tensor, weights: Tensor, out: Tensor, *, most: int, beta: float = 0.0) -> None:
    """Multiply every unit's rows by one matrix; see ``product``."""
    product(inputs, weights, out, most=most, beta=beta)()


def product(
    inputs: Tensor, weights: Tensor, out: Tensor, *, most: int, beta: float = 0.0
) -> Callable[[], object]:
    """Return a call that multiplies every unit's rows by one matrix, for buffers that stay.

    No bit depends on the number of units.

    Args:
        inputs: Shape (units, rows, depth), where the rows of all units have one distance.
        weights: Shape (depth, outputs).
        out: Shape (units, rows, outputs), where the rows of all units have one distance.
        most: Largest number of units in a call.
        beta: 0, or 1 to add the product to ``out``.
    """
    units, rows, depth = inputs.shape
    shape = rows, depth, weights.shape[1]
    strides = inputs.stride(1), weights.stride(), out.stride(1)
    threads = torch.get_num_threads()
    if is_steady(shape, strides, most, beta=beta, threads=threads, device=inputs.device):
        together = out.view(-1, shape[2])
        return partial(together.addmm_, inputs.view(-1, depth), weights, beta=beta)
    return partial(out.baddbmm_, inputs, weights.expand(units, -1, -1), beta=beta)


def multiply_apart(inputs: Tensor, weights: Tensor, out: Tensor, *, beta: float = 0.0) -> None:
    """Multiply each unit's rows by one matrix, in products of their own; see ``multiply``."""
    out.baddbmm_(inputs, weights.expand(len(inputs), -1, -1), beta=beta)


def add_gradient(weight: Tensor, bias: Tensor | None, inputs: Tensor, gradient: Tensor) -> None:
    """Add a layer's gradient in one chunk, from its inputs and the gradient at its outputs.

    Args:
        weight: Contiguous, shape (units, inputs, outputs).
        bias: Shape (units, outputs); None to leave it to the caller.
        inputs: Shape (units, rows, inputs).
        gradient: Shape (units, rows, outputs).
    """
    weight.baddbmm_(inputs.transpose(1, 2), gradient)
    if bias is not None:
        bias.add_(gradient.sum(1))


@cache
def is_steady(
    shape: tuple[int, int, int],
    strides: tuple[int, tuple[int, int], int],
    most: int,
    *,
    beta: float,
    threads: int,
    device: torch.device,
) -> bool:
    """Compare one product of all rows with separate ones, for 1 to ``most`` units.

    Args:
        shape: Rows of a unit, depth and outputs.
        strides: Distance of the rows, strides of the shared matrix, and distance of the results.
        most: Largest number of units in a call.
        beta: Factor of the previous result.
        threads: Number of torch threads, on which the library's choice may depend.
        device: Device of the products.
    """
    rows, depth, outputs = shape
    distance, (down, across), apart_by = strides
    generator = np.random.Generator(np.random.Philox(key=2))

    def draw(*size: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(size, dtype=np.float32)).to(device)

    inputs = draw(most, rows, distance)[:, :, :depth]
    matrix = draw(depth, down) if across == 1 else draw(outputs, across).t()
    matrix = matrix[:depth, :outputs]
    before = draw(most, rows, apart_by)
    apart = before.clone()[:, :, :outputs]
    multiply_apart(inputs, matrix, apart, beta=beta)
    for units in range(min(most, threads), most + 1):
        together = before[:units].clone()[:, :, :outputs]
        together.view(-1, outputs).addmm_(inputs[:units].view(-1, depth), matrix, beta=beta)
        if not torch.equal(together, apart[:units]):
            return False
    return True
