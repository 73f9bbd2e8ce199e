"""One writer's stream: it is read while there is room, and answered as its episodes are settled."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from fullrank.common.errors import DeadlinePassed
from fullrank.common.types import RunTerm
from fullrank.replay.intake import EpisodeOutcome, Fate
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.appends import RECEIVE_S
from fullrank_replay.episode_parser import EpisodeParser, RejectedEpisode
from fullrank_replay.inbox import Inbox, QueuedEpisode

REFUSALS = 64
"""Refusals that may wait to be read by a writer before its stream is read on."""
WAITING = 64
"""Episodes of one stream that may wait to be stored before it is read on."""

SendResponse = Callable[[pb.WriteResponse], Awaitable[None]]


class WriterStream:
    """Carries the episodes of one stream to the inbox of its table, and their outcomes back.

    Args:
        inbox: The table's.
        parser: Assembles the episodes.
        run_term: The term under which the writer writes.
    """

    def __init__(self, inbox: Inbox, parser: EpisodeParser, *, run_term: RunTerm) -> None:
        self._inbox, self._parser, self.run_term = inbox, parser, run_term
        self._pending: deque[int] = deque()
        self._refused: list[RejectedEpisode] = []
        self._failure: Exception | None = None
        self._changed, self._taken = asyncio.Event(), asyncio.Event()

    async def converse(self, requests: AsyncIterator[pb.WriteRequest], send: SendResponse) -> None:
        """Receive and answer until the writer closes its side and everything is settled.

        Raises:
            FullrankError: The stream ends otherwise.
        """
        reading = asyncio.create_task(self._read(requests))
        reading.add_done_callback(lambda _: self._changed.set())
        try:
            await self._answer(reading, send)
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    def settle(self, sequence: int, outcome: EpisodeOutcome) -> None:
        """Take the outcome of the oldest episode that waits."""
        self._pending.popleft()
        if outcome.fate not in (Fate.STORED, Fate.REPEATED):
            self._refused.append(RejectedEpisode(sequence, outcome.reason))
        self._changed.set()
        self._taken.set()

    def fail(self, error: Exception) -> None:
        """End the stream with an error; its waiting episodes are sent again on another one."""
        self._failure = self._failure or error
        self._changed.set()
        self._taken.set()

    async def _read(self, requests: AsyncIterator[pb.WriteRequest]) -> None:
        """Put whole episodes into the inbox; reads on only while there is room for more."""
        room, parser, held = self._inbox.room, self._parser, 0
        try:
            while (request := await self._next(requests)) is not None:
                if size := parser.bytes_of(request):
                    room.give_back(held)
                    held = 0
                    await room.take(size)
                    held = size
                for decided in parser.feed(request):
                    if isinstance(decided, RejectedEpisode):
                        self._refused.append(decided)
                        self._changed.set()
                    elif self._failure is None:
                        self._pending.append(decided.sequence)
                        self._inbox.put(QueuedEpisode(decided, self, held))
                        held = 0
                if not parser.receiving:
                    room.give_back(held)
                    held = 0
                await self._answered()
        finally:
            room.give_back(held)

    async def _next(self, requests: AsyncIterator[pb.WriteRequest]) -> pb.WriteRequest | None:
        """The next message; within an episode it has to come soon."""
        try:
            async with asyncio.timeout(RECEIVE_S if self._parser.receiving else None):
                return await anext(requests, None)
        except TimeoutError:
            raise DeadlinePassed(f"no chunk came for {RECEIVE_S:.0f} s; write again") from None

    async def _answered(self) -> None:
        """Wait until few answers are outstanding."""
        while len(self._pending) >= WAITING or len(self._refused) >= REFUSALS:
            self._taken.clear()
            await self._taken.wait()

    @property
    def _settled(self) -> int:
        """The sequence up to which everything is decided."""
        if self._pending:
            return self._pending[0] - 1
        return self._parser.last - self._parser.receiving

    async def _answer(self, reading: "asyncio.Task[None]", send: SendResponse) -> None:
        """Tell the writer the settled episodes, as often as it reads."""
        told = -1
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._failure is not None:
                raise self._failure
            settled = self._settled
            if settled > told or self._refused:
                refused, self._refused = self._refused, []
                self._taken.set()
                told = settled
                messages = [refusal.message() for refusal in refused]
                await send(pb.WriteResponse(settled=settled, refused=messages))
            if reading.done():
                reading.result()
                if not self._pending and not self._refused and told >= self._settled:
                    return
