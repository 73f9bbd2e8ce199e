"""Coroutines that run until the first one finishes; calls that a thread may take."""

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import TypeVar

CallResult = TypeVar("CallResult")

QUICK_S = 1e-3
"""Duration below which work is repeated on the event loop, seconds. A change of threads and back
takes a tenth of it on idle cores, and as long on cores that learners use
(``benchmarks/round_overhead.py``)."""


async def first(*awaitables: Awaitable[None]) -> None:
    """Run all until the first finishes, cancel the others, and return or raise as the first did.

    If several fail together, the error of the one given first is raised.
    """
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:  # a set of tasks has no stable order
        if task in done:
            task.result()


async def is_set(event: asyncio.Event) -> None:
    """Return once an event is set."""
    await event.wait()


class QuickCalls:
    """Calls of one kind: each on a thread, or on the event loop if the one before was quick."""

    def __init__(self) -> None:
        self._last_s = inf

    def call(self, function: Callable[[], CallResult]) -> "asyncio.Future[CallResult]":
        """Begin a call; returns the future of its result, which a call on the event loop has."""
        loop = asyncio.get_running_loop()
        if self._last_s >= QUICK_S:
            return loop.run_in_executor(None, self._measured, function, loop.time)
        future: asyncio.Future[CallResult] = loop.create_future()
        future.set_result(self._measured(function, loop.time))
        return future

    def _measured(
        self, function: Callable[[], CallResult], clock: Callable[[], float]
    ) -> CallResult:
        began_at = clock()
        try:
            return function()
        finally:
            self._last_s = clock() - began_at
