"""Graphs of launches: a computation that cannot be captured is launched."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

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


class Refused(SimpleNamespace):
    """A graph whose capture begins and cannot end, as after an operation that waits."""

    def capture_begin(self, **_: object) -> None:
        """Begin, on the stream that is current."""

    def capture_end(self) -> None:
        """End.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError("operation failed due to a previous error during capture")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The current streams of a device without hardware, the latest last."""
    found = [SimpleNamespace(device="cuda:0", name="default")]
    for name, stand_in in {
        "is_available": lambda: True,
        "device": nullcontext,
        "current_device": lambda: 0,
        "current_stream": lambda device=None: found[-1],
        "set_stream": found.append,
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "Stream": lambda: SimpleNamespace(device="cuda:0", name="side"),
        "CUDAGraph": Refused,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
    return found


def test_after_a_capture_that_fails_launches_are_on_the_stream_of_before(
    streams: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graphs, used = Graphs(torch.device("cpu")), list[str]()
    monkeypatch.setattr(graphs, "captures", True)
    for _ in range(2):
        graphs.run(
            "update",
            lambda draw, check: used.append(streams[-1].name),
            draw=lambda: torch.zeros(1),
            check_cancelled=lambda: None,
        )
    assert used == ["default", "side", "default"]  # launched, captured, launched
    assert "not_captured" in caplog.text
