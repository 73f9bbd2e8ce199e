"""Selection of the same rows, or the same columns, from many tensors."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

Copy: TypeAlias = tuple[Tensor, Tensor]
"""Two tensors of one shape: where to, and where from."""


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

    def columns_of(self, tensor: Tensor) -> Tensor:
        """Return the columns of a matrix with these indices, for reading only."""
        return tensor.index_select(1, self._index) if self._span is None else tensor[:, self._span]

    def put(self, tensor: Tensor, values: Tensor) -> None:
        """Overwrite the rows of a tensor."""
        if self._span is None:
            tensor.index_copy_(0, self._index, values)
        else:
            tensor[self._span] = values


class LiveColumns:
    """Columns of first layers that multiply inputs which are not always zero.

    Args:
        columns: Indices of these columns, ascending.
    """

    def __init__(self, columns: Sequence[int]) -> None:
        starts = [i for i, c in enumerate(columns) if i == 0 or c != columns[i - 1] + 1]
        lengths = np.diff([*starts, len(columns)]).tolist()
        self._runs = [
            (slice(columns[i], columns[i] + length), slice(i, i + length))
            for i, length in zip(starts, lengths, strict=True)
        ]

    def spread(self, first: Tensor, out: Tensor) -> Iterator[Copy]:
        """Yield the copies of these columns of layers, (units, outputs, inputs), side by side."""
        for source, place in self._runs:
            yield out[:, :, place], first[:, :, source]

    def fold(self, gradient: Tensor, out: Tensor) -> Iterator[Copy]:
        """Yield the copies of the gradient at these columns into that at the layers."""
        for place, source in self._runs:
            yield out[:, :, place], gradient[:, :, source]


def copy_all(copies: Iterable[Copy]) -> None:
    """Copy the present values."""
    for out, source in copies:
        out.copy_(source)
