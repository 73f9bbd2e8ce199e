"""The paths that CUDA takes, forced on the CPU, whose tensors then count as those of a device."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fullrank.algorithms import fused_values, ppo, pqn, sum_optimiser
from fullrank.networks import adam
from fullrank.networks.fused import (
    cuda,
    darl1n,
    gradients,
    kernels,
    maddpg,
    minibatch,
    products,
    unit_batch,
)
from fullrank.training import centralised
from fullrank_controller.local import computation

PATHS = (
    (adam, "steps_at_once"),
    (sum_optimiser, "steps_at_once"),
    (cuda, "stays_on"),
    (gradients, "stays_on"),
    (darl1n, "stays_on"),
    (maddpg, "stays_on"),
    (minibatch, "stays_on"),
    (fused_values, "stays_on"),
    (ppo, "stays_on"),
    (pqn, "stays_on"),
    (centralised, "stays_on"),
)
"""Functions that tell whether CUDA takes another path than the CPU."""


def take_paths(monkeypatch: pytest.MonkeyPatch, *, of_cuda: bool) -> None:
    """Take the paths of CUDA, or those of the CPU, from now on."""
    for module, path in PATHS:
        monkeypatch.setattr(module, path, lambda device: of_cuda)
    monkeypatch.setattr(computation, "fits", lambda table, device: True)


def without_passes_of_ppo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute PPO's perceptrons as a device does, which has no hand-written passes of them."""
    monkeypatch.setattr(ppo, "layers_of", lambda network: None)


def take_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take products and sums of one order, as on CUDA, by a stand-in for their kernel."""
    for module in (products, kernels, unit_batch):
        monkeypatch.setattr(module, "takes_kernels", lambda device: True)
    monkeypatch.setattr(products, "_multiply_in_order", multiply_in_order)


def multiply_in_order(left: Tensor, right: Tensor, out: Tensor, *, adds: bool = False) -> None:
    """Multiply matrices term by term, by operations on entries alone."""
    sums = torch.zeros(out.shape)
    for column, row in zip(left.unbind(2), right.unbind(1), strict=True):
        sums += column[:, :, None] * row[:, None]
    out.copy_(sums + out if adds else sums)


class Watched(TorchDispatchMode, ABC):  # type: ignore[no-untyped-call]
    """Sees every operation of torch within its block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Leave an operation to the subclass."""
        return self.compute(func, args, kwargs or {})

    @abstractmethod
    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute an operation, or refuse it."""


class NoOtherSums(Watched):  # type: ignore[no-untyped-call]
    """Refuses products and sums of torch, whose order a card may choose by the units in a call."""

    SUMS = ("sum", "mean", "norm", "mm", "mv", "softmax", "dot", "einsum", "std", "var")

    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Compute an operation on entries."""
        name = func.overloadpacket.__name__.strip("_")
        if name.endswith(self.SUMS) and args[0].is_floating_point():
            raise RuntimeError(f"{func} sums in an order of its own")
        return func(*args, **kwargs)
