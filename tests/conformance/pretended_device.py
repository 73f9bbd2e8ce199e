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
from torch.utils._python_dispatch import TorchDispatchMode
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
from fullrank.networks import adam
from fullrank.networks.fused import gradients

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


class PretendedDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes operations on the host's tensors, and checks all others.

    Args:
        monkeypatch: Lets configured devices be this one, and paths of CUDA be taken on it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._shapes = FakeTensorMode(allow_non_fake_inputs=True)
        for module in _COMPUTING:
            monkeypatch.setattr(module, "device_of", lambda name, **_: torch.device(name))
        columns = gradients.BLOCK_COLUMNS
        monkeypatch.setitem(columns, DEVICE, columns["cuda"])
        monkeypatch.setattr(adam, "steps_at_once", lambda device: device.type == DEVICE)
        monkeypatch.setattr(gradients, "snaps_on", lambda device: device.type == DEVICE)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Compute or check an operation; a copy to the host holds zeros."""
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        to = torch.device(kwargs.get("device") or "cpu").type
        if DEVICE not in (to, *(tensor.device.type for tensor in tensors)):
            return func(*args, **kwargs)
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
        moves = func in (_aten.copy_.default, _aten._to_copy.default)
        if not moves and any(tensor.device.type == "cpu" and tensor.dim() for tensor in tensors):
            raise RuntimeError(f"{func} needs tensors on the same device")
        with self._shapes:
            result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.device.type == "cpu":
            return torch.zeros(result.shape, dtype=result.dtype)
        return result


@contextmanager
def pretended_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend a device within the block, in a process that would let all products be TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # as a plug-in may; cuDNN does so by default
    try:
        with PretendedDevice(monkeypatch):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _may_be_tf32() -> bool:
    """Return whether a card would compute products, or those of its recurrent layers, in TF32."""
    coarse = torch.get_float32_matmul_precision() != "highest"
    return coarse or torch.backends.cudnn.allow_tf32
