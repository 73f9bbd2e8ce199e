"""A slice of the reproduction of [Wang21], through the command's own path."""

import time
from pathlib import Path

import pytest

from fullrank_reproduction import learning, timing, wang21
from fullrank_reproduction.cells import Cell, CellOrigin
from fullrank_reproduction.cli import train
from fullrank_reproduction.coded_maddpg import reproduce
from fullrank_reproduction.learning import Wang21Budget
from fullrank_reproduction.scales import Wang21Scale

SLICE = Wang21Scale(
    name="slice",
    budget=Wang21Budget(
        iterations=4,
        cyclic=4,
        compared=2,
        payload=2,
        seeds=2,
        batch=32,
        warmup=128,
        panels=learning.AS_STATED,
    ),
    repeats=2,
    real=tuple(timing.settings(wang21.TASKS[:1], agents=[8], codes=("uncoded", "cyclic")))[1:5:3],
    real_rounds=4,
)


@pytest.mark.e2e
def test_a_slice_ends_with_pictures_and_a_page_and_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "ROUNDS", 20)
    monkeypatch.setattr(timing, "LEARNT", 5)
    seen: list[tuple[str, CellOrigin]] = []

    def done(cell: Cell, origin: CellOrigin) -> None:
        seen.append((cell.name, origin))

    for _ in range(2):
        page = reproduce(SLICE, tmp_path, train=train, clock=time.process_time, done=done)
    half = len(seen) // 2
    assert {origin for _, origin in seen[:half]} == {CellOrigin.COMPUTED}
    assert {origin for _, origin in seen[half:]} == {CellOrigin.KEPT}
    text = " ".join(page.read_text().split())
    for picture in ("learning", "payload", "times-paper", "times-here", "times-processes"):
        assert (tmp_path / f"{picture}.png").stat().st_size > 10_000
        assert f"({picture}.png)" in text
    for task in wang21.TASKS:
        assert f"centralised training learns: {task.name}. **held**" in text
