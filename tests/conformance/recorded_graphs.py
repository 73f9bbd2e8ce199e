"""Graphs of CUDA on the CPU: operations are recorded, and replayed on the tensors they had then.

A replay runs no line of Python, as on CUDA: what depended on a value when it was recorded is as it
was then. So it has the bits of a computation only where that one can be captured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, UntypedStorage
from torch.utils._pytree import tree_leaves

from fullrank.algorithms import sum_optimiser
from fullrank.networks import heads
from fullrank.networks.fused.cuda import Graphs
from fullrank.training import centralised

from .paths import Watched

_aten = torch.ops.aten
WAITING = {_aten._local_scalar_dense.default, _aten.equal.default, _aten.nonzero.default} | {
    *(_aten.masked_select.default, _aten.is_nonzero.default, _aten.item.default)
}
"""Operations that a capture refuses, because they wait for the device."""


class RecordedGraph(Watched):  # type: ignore[no-untyped-call]
    """Operations in their order, with their results, whose memory replays write."""

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[tuple[Callable[..., Any], Any, Any, list[Tensor]]] = []
        self._before: dict[int, tuple[UntypedStorage, UntypedStorage]] = {}

    def compute(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run and record an operation."""
        if func in WAITING:
            raise RuntimeError(f"{func} waits for the device, which cannot be captured")
        for argument, given in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._keep(given)
        self._keep(kwargs.get("out"))
        result = func(*args, **kwargs)
        self._operations.append((func, args, kwargs, tensors_of(result)))
        return result

    def _keep(self, written: Any) -> None:
        for tensor in tensors_of(written):
            memory = tensor.untyped_storage()
            content = memory.clone()  # type: ignore[no-untyped-call]
            self._before.setdefault(memory.data_ptr(), (memory, content))

    def undo(self) -> None:
        """Give all memory its content of before, since a capture computes nothing."""
        for memory, content in self._before.values():
            memory.copy_(content)
        self._before.clear()

    def replay(self) -> None:
        """Run the operations again."""
        with torch.no_grad():  # the operations of backward passes are among them
            for func, args, kwargs, recorded in self._operations:
                inputs = tensors_of((args, kwargs))
                given = {tensor.untyped_storage().data_ptr() for tensor in inputs}
                for old, new in zip(recorded, tensors_of(func(*args, **kwargs)), strict=True):
                    if old.untyped_storage().data_ptr() not in given:
                        old.copy_(new)


def tensors_of(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def record_graphs(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Capture computations as on CUDA from now on; returns a list of the graphs."""
    made = list[RecordedGraph]()

    def capture(self: Graphs, compute: Any, noise: Tensor) -> RecordedGraph:
        made.append(RecordedGraph())
        with made[-1]:
            compute(noise.clone, lambda: None)
        made[-1].undo()
        return made[-1]

    begin = Graphs.__init__

    def capturing(self: Graphs, device: torch.device) -> None:
        begin(self, device)
        self.captures = True

    monkeypatch.setattr(Graphs, "__init__", capturing)
    monkeypatch.setattr(Graphs, "_capture", capture)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    return made


def compute_by_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw, digest and add up squares by operations, which are recorded, unlike other libraries."""

    def fill(out: Tensor, keys: Tensor, size: int) -> Tensor:
        return out.copy_(keys.sum(1).remainder(97)[:, None, None] / 97.0)

    def digests(rows: Tensor, length: int) -> Tensor:
        words = rows[:, :length].contiguous().view(torch.int32)
        own = (words.long() * torch.arange(1, 2 * length, 2)).sum(1)
        return torch.stack([own, own * own], dim=1).view(torch.uint8)

    monkeypatch.setattr(heads, "draws_there", lambda device: True)
    monkeypatch.setattr(heads, "fill_gumbel", fill)
    monkeypatch.setattr(centralised, "row_digests", digests)
    monkeypatch.setattr(sum_optimiser, "squares", lambda values: values.square().sum())
