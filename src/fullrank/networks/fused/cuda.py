"""On CUDA: graphs of launches, replayed as one; updates that stay; copies that hold nothing up."""

import gc
import logging
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray

OnFixedBuffers: TypeAlias = Callable[[Callable[[], Tensor], Callable[[], None]], None]
"""A computation, given how to draw and to check, of which the tensors keep their addresses but for
what is drawn, keys of noise or a minibatch, which is on the device and may be overwritten."""


log = logging.getLogger(__name__)

KEPT = 64
"""Most graphs of a ``Graphs``; what comes later is launched."""

_FIRST = Lock()
"""Held while a computation is first launched and captured: a capture begins by waiting for all
devices, which breaks one that is under way on another thread."""


class _Captured(NamedTuple):
    """A captured computation, which is kept because its tensors must be, and the noise it reads."""

    compute: OnFixedBuffers
    noise: Tensor
    graph: torch.cuda.CUDAGraph


class Graphs:
    """Computations by key: on CUDA each is launched and captured once, and then replayed.

    Small networks take less time to compute than to launch: 8 agents of width 64 some 1,100
    kernels, most of them shorter than a launch. A graph has the kernels that were launched, and so
    their bits. On other devices, and where a capture fails, every call computes.

    Args:
        device: Device of the computations.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.captures = device.type == "cuda"
        self._captured: dict[Hashable, _Captured] = {}
        self._stream: torch.cuda.Stream | None = None
        self._refused = False

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
            draw: Makes the keys of the noise, or lays the minibatch, on the host, of one shape for
                each key.
            check_cancelled: Raises ``Cancelled`` to abandon the work; a graph cannot be abandoned.
        """
        if not self.captures or self._refused:
            compute(lambda: draw().to(self._device), check_cancelled)
            return
        check_cancelled()
        captured = self._captured.get(key)
        if captured is None:
            with _FIRST:
                noise = draw().to(self._device)
                compute(noise.clone, check_cancelled)  # readies this thread's libraries
                if len(self._captured) < KEPT:
                    self._keep(key, compute, noise)
            return
        if captured.noise.numel():  # does not wait for the device
            captured.noise.copy_(draw().pin_memory(), non_blocking=True)
        captured.graph.replay()

    def _keep(self, key: Hashable, compute: OnFixedBuffers, noise: Tensor) -> None:
        """Keep the graph of a computation; where none can be made, all are launched from now on."""
        try:
            self._captured[key] = _Captured(compute, noise, self._capture(compute, noise))
        except RuntimeError as error:  # launches have the same bits
            self._refused = True
            log.warning("not_captured device=%s reason=%s", self._device, error)

    def _capture(self, compute: OnFixedBuffers, noise: Tensor) -> torch.cuda.CUDAGraph:
        """Capture a computation without running it; graphs of a stream share memory.

        Other threads may launch on the device meanwhile.
        """
        pool = next((captured.graph.pool() for captured in self._captured.values()), None)
        with torch.cuda.device(self._device), _uncollected(), _same_stream():
            self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool, self._stream, capture_error_mode="thread_local"):
                compute(noise.clone, lambda: None)
        return graph


def nothing_drawn() -> Tensor:
    """Return the draw of a computation that reads what lies on its device already."""
    return torch.zeros(0)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage: graphs that it frees wait for the device, which ends a capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _same_stream() -> Iterator[None]:
    """Launch on the same stream afterwards: a capture that fails leaves its own current."""
    stream = torch.cuda.current_stream()
    try:
        yield
    finally:
        torch.cuda.set_stream(stream)


Item = TypeVar("Item")


def stays_on(device: torch.device) -> bool:
    """Return whether updates stay on their device, snapped there: on CUDA."""
    return device.type == "cuda"


class HostCopy:
    """A copy of a tensor in host memory; on CUDA it may still be under way when it is made.

    There its memory is page-locked: other memory is copied at a tenth of the rate of the bus.

    Args:
        tensor: May be overwritten by later operations on its device.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._arrived: torch.cuda.Event | None = None
        if tensor.device.type != "cuda":
            self._host = tensor.cpu().clone()  # ``cpu`` makes no copy of host memory
            return
        self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        self._host.copy_(tensor, non_blocking=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._arrived.record(torch.cuda.current_stream(tensor.device))

    def array(self) -> NDArray[Any]:
        """Return the copy, once it has arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._host.numpy()


class DeviceRows:
    """Rows that stay on their device; ``Rows``.

    Args:
        tensor: Shape (n, size) float32; nothing overwrites it.

    Attributes:
        tensor: As given.
    """

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self._lock = tensor, Lock()
        self._copy: FloatArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Return (n, size)."""
        return tuple(self.tensor.shape)

    @property
    def nbytes(self) -> int:
        """Return their size."""
        return self.tensor.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        """Return the rows in host memory, copied when they are first read."""
        with self._lock:
            if self._copy is None:
                self._copy = HostCopy(self.tensor).array()
        return self._copy

    def tobytes(self) -> bytes:
        """Return the bytes of the rows, row by row."""
        return np.asarray(self).tobytes()


def as_rows(tensor: Tensor) -> Rows:
    """Return a tensor as rows, in host memory or where they stay."""
    return DeviceRows(tensor) if stays_on(tensor.device) else tensor.numpy()


def tensor_of(rows: Rows) -> Tensor:
    """Return rows as a tensor where they lie."""
    if isinstance(rows, DeviceRows):
        return rows.tensor
    return torch.from_numpy(np.require(np.asarray(rows), requirements="W"))


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Copy values from host memory to a device, without waiting for it."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield each item when the next has been begun."""
    for earlier in items:
        for item in items:
            yield earlier
            earlier = item
        yield earlier
