"""Products of float32 matrices, of which each sum is added up in the order of its terms.

No bit depends on the size of the tiles: the terms of a tile are added one after another, too.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILES = ((64, 16), (32, 32))
"""Sides of a program's tile, and terms that it takes at a time, of wide products and of others."""
MATRICES = 2**15
"""Most products of a launch."""


@triton.jit(do_not_specialize=["rows", "depth", "columns"])
def multiply_tiles(
    left: tl.tensor,
    right: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    depth: tl.tensor,
    columns: tl.tensor,
    left_batch: tl.tensor,
    left_row: tl.tensor,
    left_column: tl.tensor,
    right_batch: tl.tensor,
    right_row: tl.tensor,
    right_column: tl.tensor,
    out_batch: tl.tensor,
    out_row: tl.tensor,
    out_column: tl.tensor,
    ADDS: tl.constexpr,
    TILE: tl.constexpr,
    TERMS: tl.constexpr,
) -> None:
    """Store a tile of the product of two matrices, or add it; arguments as in ``multiply``."""
    batch, place, term = tl.program_id(2).to(tl.int64), tl.arange(0, TILE), tl.arange(0, TERMS)
    row = tl.program_id(0).to(tl.int64) * TILE + place[:, None]
    column = tl.program_id(1) * TILE + place[None, :]
    sums = tl.zeros((TILE, TILE), tl.float32)
    own = left + batch * left_batch + row * left_row
    other = right + batch * right_batch + column * right_column
    for start in range(0, depth, TERMS):
        across, down = start + term[None, :], start + term[:, None]
        x = tl.load(own + across * left_column, mask=(row < rows) & (across < depth), other=0.0)
        y = tl.load(other + down * right_row, mask=(column < columns) & (down < depth), other=0.0)
        sums = tl.dot(x, y, sums, input_precision="ieee")
    inside = (row < rows) & (column < columns)
    at = out + batch * out_batch + row * out_row + column * out_column
    if ADDS:
        sums += tl.load(at, mask=inside, other=0.0)
    tl.store(at, sums, mask=inside)


def multiply(left: Tensor, right: Tensor, out: Tensor, *, adds: bool) -> None:
    """Multiply each matrix of a batch by another one.

    Args:
        left: Shape (batch, rows, depth).
        right: Shape (batch, depth, columns).
        out: Shape (batch, rows, columns).
        adds: Add the products to ``out``.
    """
    _, rows, columns = out.shape
    tile, terms = TILES[min(rows, columns) < TILES[0][0]]
    grid = triton.cdiv(rows, tile), triton.cdiv(columns, tile)
    for own in zip(*(torch.split(part, MATRICES) for part in (left, right, out)), strict=True):
        multiply_tiles[(*grid, len(own[0]))](
            *(*own, rows, left.shape[2], columns),
            *(*left.stride(), *right.stride(), *out.stride()),
            ADDS=adds,
            TILE=tile,
            TERMS=terms,
        )
