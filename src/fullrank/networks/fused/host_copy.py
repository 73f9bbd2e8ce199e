"""Copies of tensors in host memory that do not hold up their device."""

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor

from fullrank.common.types import FloatArray

Item = TypeVar("Item")


class HostCopy:
    """A copy of a tensor in host memory; on CUDA it may still be under way when it is made.

    There its memory is page-locked: other memory is copied at a tenth of the rate of the bus.

    Args:
        tensor: May be overwritten by later operations on its device.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if tensor.device.type != "cuda":
            self._host = tensor.cpu()
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor, non_blocking=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._arrived.record(torch.cuda.current_stream(tensor.device))

    def array(self) -> FloatArray:
        """Return the copy, once it has arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host.numpy()


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield each item when the next has been begun."""
    for earlier in items:
        for item in items:
            yield earlier
            earlier = item
        yield earlier
