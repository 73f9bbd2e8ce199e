"""The one-slot outbox of a learner's stream."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from fullrank.common.errors import DeadlinePassed

EncodedAssignment: TypeAlias = Sequence[tuple[str, bytes]]
"""Encoded messages in order, each with the kind under which its bytes are counted."""


class Outbox:
    """Unwritten messages of a stream: notices, and the rest of one assignment.

    A newer assignment replaces the unwritten part of the older one, a Commit drops it, and notices
    always go first, so a slow stream never queues stale parameters.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        """Bytes written, by kind."""
        self.assigned_at = 0.0
        """Loop time at which an assignment was last written in full."""
        self._notices: deque[tuple[str, bytes]] = deque()
        self._assignment: deque[tuple[str, bytes]] = deque()
        self._deadline_s: float | None = None
        self._filled = asyncio.Event()

    def assign(self, assignment: EncodedAssignment, *, deadline_s: float) -> None:
        """Replace the assignment; a write still blocked after ``deadline_s`` ends the stream."""
        self._assignment, self._deadline_s = deque(assignment), deadline_s
        self._filled.set()

    def commit(self, notice: bytes) -> None:
        """Drop the unwritten part of the assignment and announce its commit."""
        self._assignment.clear()
        self._notify("commit", notice)

    def refuse(self, notice: bytes) -> None:
        """Announce that a contribution was late or repeated; the assignment continues after it."""
        self._notify("refused", notice)

    def _notify(self, kind: str, notice: bytes) -> None:
        self._notices.append((kind, notice))
        self._filled.set()

    async def drain(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Write messages until cancelled.

        Raises:
            DeadlinePassed: The peer did not take a message in time.
        """
        while True:
            await self._filled.wait()
            self._filled.clear()
            while pending := self._notices or self._assignment:
                kind, message = pending.popleft()
                await self._write(write, message)
                self.sent[kind] += len(message)
                if pending is self._assignment and not pending:
                    self.assigned_at = asyncio.get_running_loop().time()

    async def _write(self, write: Callable[[bytes], Awaitable[None]], message: bytes) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                await write(message)
        except TimeoutError:
            raise DeadlinePassed(
                f"the learner took no message for {self._deadline_s:.1f} s"
            ) from None
