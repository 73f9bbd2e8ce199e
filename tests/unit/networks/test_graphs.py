"""Graphs of launches: a computation that cannot be captured is launched."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fullrank.networks.fused.cuda import Graphs, OnFixedBuffers


def test_where_a_capture_fails_all_later_computations_are_launched(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graphs, found, tried = Graphs(torch.device("cpu")), list[float](), list[Tensor]()

    def fail(compute: OnFixedBuffers, noise: Tensor) -> torch.cuda.CUDAGraph:
        tried.append(noise)
        raise RuntimeError("operation not permitted when stream is capturing")

    def compute(noise: Callable[[], Tensor], check: Callable[[], None]) -> None:
        check()
        found.append(float(noise()))

    monkeypatch.setattr(graphs, "captures", True)  # as on CUDA
    monkeypatch.setattr(graphs, "_capture", fail)
    with caplog.at_level(logging.WARNING):
        for key, value in enumerate((1.0, 2.0, 3.0)):
            draw = torch.tensor(value).clone
            graphs.run(key % 2, compute, draw=draw, check_cancelled=lambda: None)
    assert found == [1.0, 2.0, 3.0]
    assert len(tried) == 1
    assert [record.message.split()[0] for record in caplog.records] == ["not_captured"]
