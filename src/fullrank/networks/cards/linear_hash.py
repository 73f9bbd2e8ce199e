"""Linear hashes of the rows of a matrix, made where it lies."""

import torch
from torch import Tensor

from fullrank.common.updates import GRID


def row_hashes(rows: Tensor, weights: Tensor) -> Tensor:
    """Return the words of ``LinearHash.of`` of every row, of which a device wraps modulo 2^64, too.

    Args:
        rows: Updates, snapped to the default grid, shape (R, P) float32.
        weights: Weights of the hash, shape (2, >= P), the words as int64.

    Returns:
        The words as int64, shape (R, 2).
    """
    integers = rows.to(torch.float64).mul_(1.0 / GRID).to(torch.int64)
    own = weights[:, : rows.shape[1]]
    return torch.stack([(integers * word).sum(1) for word in own], dim=1)
