"""Selection of the same rows from many tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor


def consecutive(rows: Sequence[int]) -> bool:
    """Return whether the rows are consecutive, so that a slice selects them."""
    return tuple(rows) == tuple(range(rows[0], rows[0] + len(rows)))


class GatherIndex:
    """Rows along the first axis: a view of consecutive rows, a copy of any others.

    Args:
        rows: Indices of the rows; the last may be repeated.
        device: Device of the tensors.
    """

    def __init__(self, rows: Sequence[int], device: torch.device) -> None:
        self._index = torch.tensor(rows, device=device)
        self._span = slice(rows[0], rows[-1] + 1) if consecutive(rows) else None

    def of(self, tensor: Tensor) -> Tensor:
        """Return the rows of a tensor, for reading only."""
        return tensor.index_select(0, self._index) if self._span is None else tensor[self._span]

    def put(self, tensor: Tensor, values: Tensor) -> None:
        """Overwrite the rows of a tensor."""
        if self._span is None:
            tensor.index_copy_(0, self._index, values)
        else:
            tensor[self._span] = values
