"""Guards against hangs.

No test judges durations: the guard is far beyond the time that a machine ten times as slow needs,
and pytest's own limit lies beyond the guard.
"""

import asyncio
import time
from collections.abc import Callable

WAIT_S = 240.0
"""Longest wait for any condition."""
LOOK_S = 0.005
"""Time between two checks of a condition."""


async def eventually(condition: Callable[[], bool], *, what: str) -> None:
    """Return as soon as ``condition`` holds; the event loop continues meanwhile."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"did not happen within {WAIT_S} s: {what}") from None


def wait_until(condition: Callable[[], bool], *, what: str, every_s: float = 4 * LOOK_S) -> None:
    """Return as soon as ``condition``, which is checked so often, holds, without an event loop."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"did not happen within {WAIT_S} s: {what}"
        time.sleep(every_s)
