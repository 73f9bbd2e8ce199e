"""A term as it is served."""

import logging
from pathlib import Path

import pytest

from fullrank.config import load
from fullrank_controller.serving import held


def test_why_auto_takes_no_card_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fullrank.algorithms.devices.visible", lambda: 1)
    monkeypatch.setattr("fullrank.algorithms.devices.lack_of_kernels", lambda: "no compiler")
    config = load(environ={}, overrides=["algorithm.hidden=4"]).check().config
    with caplog.at_level(logging.WARNING), held(config, tmp_path / "run"):
        assert [record.getMessage() for record in caplog.records] == ["no_card reason=no compiler"]
