"""On CUDA: graphs of launches, replayed as one, and copies to the host that hold nothing up."""

from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar

import torch
from torch import Tensor

from fullrank.common.types import FloatArray

OnFixedBuffers: TypeAlias = Callable[[Callable[[], Tensor], Callable[[], None]], None]
"""A computation, given how to draw and to check, of which the tensors keep their addresses but for
the drawn noise, which is on the device and may be overwritten."""


class _Captured(NamedTuple):
    """A captured computation, which is kept because its tensors must be, and the noise it reads."""

    compute: OnFixedBuffers
    noise: Tensor
    graph: torch.cuda.CUDAGraph


class Graphs:
    """Computations by key: on CUDA each is launched and captured once, and then replayed.

    Small networks take less time to compute than to launch: 8 agents of width 64 some 1,100
    kernels, most of them shorter than a launch. A graph has the kernels that were launched, and so
    their bits. On other devices every call computes.

    Args:
        device: Device of the computations.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.captures = device.type == "cuda"
        self._captured: dict[Hashable, _Captured] = {}

    def run(
        self,
        key: Hashable,
        compute: OnFixedBuffers,
        *,
        draw: Callable[[], Tensor],
        check_cancelled: Callable[[], None],
    ) -> None:
        """Compute, or replay what was captured for the same key.

        Args:
            key: Names the computation, and so all its buffers.
            compute: The computation, always the same for a key.
            draw: Draws the noise on the host, of one shape for each key.
            check_cancelled: Raises ``Cancelled`` to abandon the work; a graph cannot be abandoned.
        """
        if not self.captures:
            compute(lambda: draw().to(self._device), check_cancelled)
            return
        check_cancelled()
        captured = self._captured.get(key)
        if captured is None:
            noise = draw().to(self._device)
            compute(noise.clone, check_cancelled)  # readies this thread's libraries for a capture
            self._captured[key] = _Captured(compute, noise, self._capture(compute, noise))
            return
        captured.noise.copy_(draw().pin_memory(), non_blocking=True)  # does not wait for the device
        captured.graph.replay()

    def _capture(self, compute: OnFixedBuffers, noise: Tensor) -> torch.cuda.CUDAGraph:
        """Capture a computation without running it; graphs that follow each other share memory.

        Other threads may use the device meanwhile.
        """
        pool = next((captured.graph.pool() for captured in self._captured.values()), None)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            compute(noise.clone, lambda: None)
        return graph


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
