"""Doings that live and end together."""

import asyncio
from collections.abc import Awaitable


async def first(*doings: Awaitable[None]) -> None:
    """Run all until the first ends, and end as it does; by then the others are cancelled."""
    tasks = [asyncio.ensure_future(doing) for doing in doings]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
