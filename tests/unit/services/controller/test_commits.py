"""What is applied and not durable is bounded by time and by bytes."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fullrank_controller import commits
from fullrank_controller.commits import Commits
from fullrank_controller.persistence.store import Applied


@pytest.mark.parametrize("lag_s", [0.0, 1000.0])
async def test_a_run_waits_for_its_store_while_too_many_bytes_of_updates_are_not_durable(
    monkeypatch: pytest.MonkeyPatch, lag_s: float
) -> None:
    """One update fits, two do not; then they are written at once, however long the lag is."""
    updates = np.zeros((2, 8), np.float32)
    monkeypatch.setattr(commits, "MOST_BYTES", updates.nbytes)
    term = SimpleNamespace(run=None, store=SimpleNamespace(lag_s=lag_s), watchdog=None)
    held = Commits(cast(Any, term), cast(Any, None))
    decided = cast(Any, SimpleNamespace(decision=SimpleNamespace(updates=updates)))

    def add() -> None:
        none, now = cast(Any, None), asyncio.get_running_loop().time()
        held.add(Applied(record=none, round=decided, blocks=None, head=0, span=none, at=now))

    add()
    await held.within_lag()
    assert not held._hurried.is_set()
    add()
    waiting = asyncio.ensure_future(held.within_lag())
    await asyncio.wait({waiting}, timeout=0)
    assert not waiting.done()
    assert held._hurried.is_set()
    held._applied.popleft()
    held._moved.set()
    await waiting
