"""Run coroutines until the first one finishes."""

import asyncio
from collections.abc import Awaitable


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
