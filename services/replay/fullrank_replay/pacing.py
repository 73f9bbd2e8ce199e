"""Pacing: appends and samples wait for each other; one thread at a time touches tables."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fullrank.replay.pace import RateLimiter

T = TypeVar("T")

PATIENCE_S = 5.0
"""Longest wait of an append for samples, and of a sample for appends."""


class Pacing:
    """Waits and locks of the calls of one service."""

    def __init__(self) -> None:
        self._limiters: dict[str, RateLimiter] = {}
        self._moved = asyncio.Condition()  # the head of a table, or that of its newest sample
        self._lock = asyncio.Lock()  # an append may evict rows that are being gathered

    def restart(self, table: str) -> None:
        """Forget the samples drawn from a table."""
        self._limiters.pop(table, None)

    def limiter(self, table: str, *, window: int) -> RateLimiter:
        """Return the rate limiter of a table that holds ``window`` rows."""
        return self._limiters.setdefault(table, RateLimiter(window=window))

    async def locked(self, call: Callable[[], T]) -> T:
        """Call in a thread, one call at a time, in the order in which they are made."""
        async with self._lock:
            return await asyncio.to_thread(call)

    async def until(self, holds: Callable[[], bool]) -> bool:
        """Wait up to ``PATIENCE_S`` for the condition; returns whether it holds."""
        if holds():
            return True
        try:
            async with asyncio.timeout(PATIENCE_S), self._moved:
                return await self._moved.wait_for(holds)
        except TimeoutError:
            return False

    async def notify(self) -> None:
        """Wake all waiting calls to check their conditions again."""
        async with self._moved:
            self._moved.notify_all()


async def shielded(work: Coroutine[Any, Any, T]) -> T:
    """Await work that continues if its caller is cancelled; its error is then nobody's."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
