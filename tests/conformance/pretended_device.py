"""A device without hardware: its tensors have shapes but no values, and mix with no others.

Code for a device is right on the CPU even where it forgets to copy a tensor there. Operations on
this device are not computed, but checked: one that reads memory of the host raises, as on CUDA.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from fullrank.algorithms import (
    actor_critic,
    container_learner,
    darl1n,
    devices,
    maddpg,
    on_policy_learner,
    pqn,
    values,
)
from fullrank.networks import heads
from fullrank.networks.fused import cuda, minibatch, unit_batch
from fullrank.training import centralised

from .paths import PATHS, Watched

DEVICE = "meta"
"""The only device type besides the CPU that a build of torch without CUDA can index."""
_aten = torch.ops.aten
_READ: Mapping[Callable[..., Any], Any] = {
    _aten._local_scalar_dense.default: 0,
    _aten.equal.default: True,
    torch.ops.prim.device.default: torch.device(DEVICE),
}
"""Operations that return values of the device, and the values that they return here."""
_PRODUCTS = {_aten.mm, _aten.mv, _aten.addmm, _aten.addmm_, _aten.addmv, _aten.bmm} | {
    *(_aten.baddbmm, _aten.baddbmm_, _aten.addbmm, _aten.addbmm_)
}

_COMPUTING = [
    devices,
    actor_critic,
    maddpg,
    darl1n,
    on_policy_learner,
    pqn,
    values,
    container_learner,
]
"""Modules that choose a device; imported here, lest one be imported while another is patched."""


class WithoutHost(Watched):  # type: ignore[no-untyped-call]
    """Refuses every operation that reads or writes host memory, as a capture does."""

    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute an operation on tensors of the device."""
        result = func(*args, **kwargs)
        touched = tree_leaves((args, kwargs, result))
        tensors = [leaf for leaf in touched if isinstance(leaf, torch.Tensor)]
        reads = func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        if reads or any(tensor.device.type == "cpu" for tensor in tensors):
            raise RuntimeError(f"{func} visits the host")
        return result


class PretendedDevice(Watched):  # type: ignore[no-untyped-call]
    """Computes operations on the host's tensors, and checks all others.

    Args:
        monkeypatch: Lets configured devices be this one, and paths of CUDA be taken on it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._shapes = FakeTensorMode(allow_non_fake_inputs=True)
        for module in _COMPUTING:
            monkeypatch.setattr(module, "device_of", lambda name, **_: torch.device(name))
        for sizes in (minibatch.BLOCK_COLUMNS, unit_batch.ENTRIES):
            monkeypatch.setitem(sizes, DEVICE, sizes["cuda"])
        for module, path in PATHS:
            monkeypatch.setattr(module, path, lambda device: device.type == DEVICE)
        monkeypatch.setattr(centralised, "row_digests", _digests)
        monkeypatch.setattr(heads, "draws_there", lambda device: device.type == DEVICE)
        monkeypatch.setattr(heads, "fill_gumbel", lambda out, keys, size: out)
        monkeypatch.setattr(cuda.Graphs, "run", self._run)
        self._captures = False

    def capture(self, compute: Callable[[], Any]) -> None:
        """Compute what is captured, which may neither wait for the device nor copy to it."""
        self._captures = True
        try:
            compute()
        finally:
            self._captures = False

    def _run(self, key: Any, compute: Any, *, draw: Any, check_cancelled: Any) -> None:
        """Launch a computation and capture it, away from the host; see ``Graphs.run``."""
        noise = draw().to(DEVICE)
        compute(noise.clone, check_cancelled)
        with WithoutHost():
            self.capture(lambda: compute(noise.clone, check_cancelled))

    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute or check an operation; a copy to the host holds zeros."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        to = torch.device(kwargs.get("device") or "cpu").type
        if DEVICE not in (to, *(tensor.device.type for tensor in tensors)):
            return func(*args, **kwargs)
        moves = func in (_aten.copy_.default, _aten._to_copy.default)
        waits = func in _READ and func is not torch.ops.prim.device.default
        if moves:
            named = torch.device(kwargs.get("device") or tensors[0].device).type
            waits = len({named, *(tensor.device.type for tensor in tensors)}) > 1
        if self._captures and waits:
            raise RuntimeError(f"{func} waits or copies, which cannot be captured")
        if func in _READ:
            return _READ[func]
        if func is _aten.detach_.default:  # ends ``torch.tensor``
            return args[0]
        with self:  # in inference mode composed operations arrive whole
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        if func.overloadpacket in _PRODUCTS and _may_be_tf32():
            raise RuntimeError(f"{func} may round to TF32")
        if not moves and any(tensor.device.type == "cpu" and tensor.dim() for tensor in tensors):
            raise RuntimeError(f"{func} needs tensors on the same device")
        if func is _aten._fused_adam_.tensor_lr:  # torch states no shapes of it
            if kwargs["lr"].device.type != DEVICE:
                raise RuntimeError(f"{func} reads its learning rate from the host")
            return None
        with self._shapes:
            result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.device.type == "cpu":
            return torch.zeros(result.shape, dtype=result.dtype)
        return result


def _digests(rows: torch.Tensor, length: int) -> torch.Tensor:
    """Stand for digests, of which a kernel has no shapes without hardware."""
    return rows.new_zeros(len(rows), 16, dtype=torch.uint8)


@contextmanager
def pretended_device(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[Callable[[], Any]], None]]:
    """Pretend a device within the block, in a process that would let all products be TF32.

    Yields:
        ``PretendedDevice.capture``.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # as a plug-in may; cuDNN does so by default
    try:
        with PretendedDevice(monkeypatch) as pretended:
            yield pretended.capture
    finally:
        torch.set_float32_matmul_precision(before)


def _may_be_tf32() -> bool:
    """Return whether a card would compute products, or those of its recurrent layers, in TF32."""
    coarse = torch.get_float32_matmul_precision() != "highest"
    return coarse or torch.backends.cudnn.allow_tf32
