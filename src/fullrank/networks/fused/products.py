"""Products and sums whose bits do not depend on the units in a call.

Of units with matrices of their own, a batch has one product each. Rows of several units are
multiplied by shared matrices, whose widths are padded.

A packed block is an array of entries of a flat vector, each times a constant, and of zeros. Blocks
are padded so that every width is a multiple of 16: no product has a single row or column, and no
row ends within a vector register, both of which would let bits depend on what is computed beside.

One product of all rows at once is faster than one for each unit, by up to two where a unit has few
rows. A library may choose another order of summation for another number of rows, so the form with
one product is used only where it gives, for every number of units, the bits of separate products.
On CUDA kernels of one order compute all products and sums.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fullrank.networks.modules import flat_size, views
from fullrank.networks.parameters import ALIGNMENT

NOTHING = -1
"""Place of an entry that is zero."""


class PackedArray(NamedTuple):
    """One array: the places of its entries in a flat vector, and their factors, of equal shapes."""

    place: Tensor
    factor: Tensor

    @classmethod
    def of(cls, place: Tensor, *widths: int, factor: float = 1.0) -> "PackedArray":
        """Pad the last axes of an array of places to ``widths``."""
        place = widen(place, *widths)
        return cls(place, torch.full(place.shape, factor))


def width_of(size: int) -> int:
    """Round ``size`` up to a multiple of ``ALIGNMENT``."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def widen(place: Tensor, *widths: int) -> Tensor:
    """Pad the last axes of an array of places to ``widths`` with ``NOTHING``."""
    missing = [
        width - size for width, size in zip(widths, place.shape[-len(widths) :], strict=True)
    ]
    padding = [end for width in reversed(missing) for end in (0, width)]
    return functional.pad(place, padding, value=NOTHING)


def places_of(module: nn.Module, start: int) -> dict[str, Tensor]:
    """Return the places of each parameter, by name, in a vector where the module has ``start``."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    flat = torch.arange(start, start + flat_size(module))
    return {names[id(parameter)]: place for parameter, place in views(module, flat)}


class Packing:
    """Blocks of flat vectors, and flat vectors of the gradients at blocks.

    Args:
        blocks: Blocks that hold every entry of a flat vector exactly once.
        units: Most units in ``unpack``.
        device: Device of the vectors.
    """

    def __init__(self, blocks: Sequence[PackedArray], *, units: int, device: torch.device) -> None:
        self._shapes = [block.place.shape for block in blocks]
        self._sizes = [block.place.numel() for block in blocks]
        place = torch.cat([block.place.flatten() for block in blocks])
        factor = torch.cat([block.factor.flatten() for block in blocks])
        (filled,) = torch.nonzero(place != NOTHING, as_tuple=True)
        self.size = len(filled)
        source = torch.empty(self.size, dtype=torch.int64)
        source[place[filled]] = filled
        self._place = torch.where(place == NOTHING, self.size, place).to(device)
        self._factor, self._source = factor.to(device), source.to(device)
        self._factor_of_entry = factor[source].to(device)
        self._packed = torch.zeros(units, len(place), device=device)
        self._flat = torch.zeros(units, self.size, device=device)

    def pack(self, flat: Tensor) -> list[Tensor]:
        """Return every block of flat vectors, shape (count, >= size), as (count, *block)."""
        padded = functional.pad(flat[:, : self.size], (0, 1))
        packed = torch.index_select(padded, 1, self._place).mul_(self._factor)
        parts = torch.split(packed, self._sizes, 1)
        return [
            torch.unflatten(part, 1, shape) for part, shape in zip(parts, self._shapes, strict=True)
        ]

    def unpack(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the gradients at flat vectors, (units, size), from those at (units, *block).

        They share memory with the next call's: fresh memory would cost page faults.
        """
        units, flat = len(gradients[0]), [gradient.flatten(1) for gradient in gradients]
        packed = torch.cat(flat, 1, out=self._packed[:units])
        found = torch.index_select(packed, 1, self._source, out=self._flat[:units])
        return found.mul_(self._factor_of_entry)


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
    if takes_kernels(inputs.device):
        return lambda left, sums: _multiply_in_order(left, weights, sums, adds=bool(beta))
    strides = inputs.stride(1), weights.stride()[1:], out.stride(1)
    threads = torch.get_num_threads()
    if is_steady(blocks, weights.shape, strides, beta=beta, threads=threads):
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
    batched_product(inputs.transpose(1, 2), gradient, weight, beta=1.0)


def batched_product(left: Tensor, right: Tensor, out: Tensor, *, beta: float = 0.0) -> Tensor:
    """Multiply each matrix of a batch by another one, into ``out``, which is returned.

    Args:
        left: Shape (batch, rows, depth).
        right: Shape (batch, depth, columns).
        out: Shape (batch, rows, columns).
        beta: 0, or 1 to add the product to ``out``.
    """
    if takes_kernels(out.device):
        _multiply_in_order(left, right, out, adds=bool(beta))
        return out
    return out.baddbmm_(left, right, beta=beta)


def add_sum(bias: Tensor, gradient: Tensor) -> None:
    """Add a bias's gradient in one chunk, from the gradient at the outputs of its layer.

    Args:
        bias: Shape (units, outputs).
        gradient: Shape (units, rows, outputs).
    """
    if takes_kernels(bias.device):
        ones = _one(bias.device).expand(len(bias), 1, gradient.shape[1])
        _multiply_in_order(ones, gradient, bias[:, None], adds=True)
    else:
        bias.add_(gradient.sum(1))


def total(values: Tensor) -> Tensor:
    """Sum over the last axis."""
    if not takes_kernels(values.device):
        return values.sum(-1)
    out = values.new_empty(values.shape[:-1])
    rows = values.reshape(1, -1, values.shape[-1])
    ones = _one(values.device).expand(1, values.shape[-1], 1)
    _multiply_in_order(rows, ones, out.view(1, -1, 1), adds=False)
    return out


def total_in_double(values: Tensor) -> Tensor:
    """Sum over the last axis in float64; by kernels, its halves are added until one is left."""
    if not takes_kernels(values.device):
        return values.sum(-1, dtype=torch.float64)
    values = values.double()
    while (size := values.shape[-1]) > 1:
        values = functional.pad(values, (0, size % 2))
        values = torch.add(*values.chunk(2, -1))
    return values[..., 0]


def row_sum(values: Tensor) -> Tensor:
    """Sum over the rows of matrices, shape (batch, rows, columns), as (batch, 1, columns)."""
    if not takes_kernels(values.device):
        return values.sum(1, keepdim=True)
    out = values.new_empty(len(values), 1, values.shape[2])
    _multiply_in_order(_one(values.device).expand(len(values), 1, values.shape[1]), values, out)
    return out


def lengths(values: Tensor, out: Tensor) -> None:
    """Compute the L2 norms over the last axis."""
    if takes_kernels(values.device):
        torch.sqrt(total(values.square()), out=out)
    else:
        torch.linalg.vector_norm(values, dim=-1, out=out)


def least_units(device: torch.device) -> int:
    """Return the least number of units in a product.

    On a CPU they are as many as threads: a product of fewer matrices is split inside a matrix,
    which changes its bits.
    """
    return torch.get_num_threads() if device.type == "cpu" else 1


def takes_kernels(device: torch.device) -> bool:
    """Return whether kernels compute the sums: on CUDA, where torch chooses orders by the units."""
    return device.type == "cuda"


@cache
def _one(device: torch.device) -> Tensor:
    return torch.ones(1, 1, 1, device=device)


def _multiply_in_order(left: Tensor, right: Tensor, out: Tensor, *, adds: bool = False) -> None:
    from fullrank.networks.cards.products_kernels import multiply

    with torch.cuda.device_of(out):  # type: ignore[no-untyped-call]
        multiply(left, right, out, adds=adds)


@cache
def is_steady(
    blocks: Blocks,
    shape: tuple[int, int, int],
    strides: tuple[int, tuple[int, int], int],
    *,
    beta: float,
    threads: int,
) -> bool:
    """Compare one product of all rows with separate ones, for all numbers of units.

    Args:
        blocks: Rows of units.
        shape: Networks, depth and outputs.
        strides: Distance of the rows, strides of the shared matrix, and distance of the results.
        beta: Factor of the previous result.
        threads: Number of torch threads, on which the library's choice may depend.
    """
    networks, depth, outputs = shape
    distance, (down, across), apart_by = strides
    generator = np.random.Generator(np.random.Philox(key=2))

    def draw(*size: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(size, dtype=np.float32))

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
