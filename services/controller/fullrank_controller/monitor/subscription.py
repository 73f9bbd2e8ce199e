"""Fan out committed iterations to subscribers; slow ones skip, the run never waits."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from fullrank.common.errors import ServiceLost
from fullrank.v1 import monitor_pb2 as pb
from fullrank_controller.monitor.log import Cursor, IterationLog

PERIOD_S = 0.25
"""Iterations committed within this period share a message, however short they are."""
BEHIND = 4096
"""Iterations by which a subscriber that had caught up may lag before it skips to the newest."""


class Subscriptions:
    """Serves committed iterations to subscribers; idle while there are none.

    Args:
        iterations: Extended while there are subscribers.
        is_last: Returns True for the last iteration of a finished run.
    """

    def __init__(self, iterations: IterationLog, *, is_last: Callable[[int], bool]) -> None:
        self._iterations = iterations
        self._is_last = is_last
        self._reading = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None
        self._closed = ""

    async def close(self, reason: str) -> None:
        """End every subscription; those of a finished run end well, with its last iteration."""
        await self._read()
        self._closed = reason
        if self._renewal is not None:
            await asyncio.wait({self._renewal})

    async def watch(self, request: pb.WatchRequest) -> AsyncGenerator[bytes, None]:
        """Encoded WatchResponses.

        Raises:
            ServiceLost: The controller stops, for the reason given.
        """
        await self._read()
        wanted = request.from_iteration, request.seen_term
        cursor = self._iterations.open(*wanted)
        caught_up = begun = False
        try:
            while True:
                if not begun:  # the wanted iteration may not be committed yet
                    cursor.index = self._iterations.find(*wanted)
                lost = self._skip(cursor) if caught_up else 0
                if cursor.index < len(self._iterations):
                    piece = self._iterations.piece(cursor)
                    yield pb.WatchResponse(lost=lost).SerializeToString() + piece
                    begun = True
                    continue
                caught_up = True
                if request.until_now or self._is_last(self._iterations.last):
                    return
                if self._closed:
                    raise ServiceLost(self._closed)
                await self._renewed()
        finally:
            self._iterations.leave(cursor)

    def _skip(self, cursor: Cursor) -> int:
        """Skip to the newest iteration if too many wait; returns how many were skipped."""
        if len(self._iterations) - cursor.index <= BEHIND:
            return 0
        lost = len(self._iterations) - 1 - cursor.index
        cursor.index += lost
        return lost

    async def _renewed(self) -> None:
        """Return when there is a new iteration; all waiting subscribers share one task."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew(self._iterations.added))
        await asyncio.shield(self._renewal)

    async def _renew(self, added: int) -> None:
        while not self._closed:
            await asyncio.sleep(PERIOD_S)
            await self._read()
            if self._iterations.added > added or self._is_last(self._iterations.last):
                return

    async def _read(self) -> None:
        async with self._reading:
            self._iterations.add(await asyncio.to_thread(self._iterations.read))
