"""The inbox of a table that grows by arrival: waiting episodes are stored as one group."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from fullrank.common.types import RunTerm
from fullrank.replay.intake import EpisodeOutcome, Intake, WrittenEpisode
from fullrank.replay.limits import APPEND_BYTES
from fullrank_replay.pacing import Pacing

INBOX_BYTES = 16 * APPEND_BYTES
"""Episodes of all writers that are received or wait, or one larger episode."""


class Sender(Protocol):
    """The stream by which an episode came."""

    run_term: RunTerm

    def settle(self, sequence: int, outcome: EpisodeOutcome) -> None:
        """Take the outcome of the oldest episode that waits."""

    def fail(self, error: Exception) -> None:
        """End the stream with an error."""


class QueuedEpisode(NamedTuple):
    """An episode that waits to be stored."""

    episode: WrittenEpisode
    sender: Sender
    size_bytes: int


class InboxRoom:
    """Memory of the episodes that are received or wait; first come, first served.

    Attributes:
        taken_bytes: Bytes of these episodes.
    """

    def __init__(self) -> None:
        self.taken_bytes = 0
        self._first = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, size_bytes: int) -> None:
        """Wait for room and take it."""
        async with self._first:
            while self.taken_bytes and self.taken_bytes + size_bytes > INBOX_BYTES:
                self._freed.clear()
                await self._freed.wait()
            self.taken_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Free room that was taken."""
        self.taken_bytes -= size_bytes
        self._freed.set()


class Inbox:
    """Episodes of all writers of a table, in the order in which they came.

    Args:
        intake: Decides about them and stores them.
        pacing: Admits a group between gathers.
        commit: Stores a group in a thread; returns an outcome, or an error of its sender, for each.

    Attributes:
        intake: As given.
        room: Memory of the episodes.
        groups: Groups that were stored.
        senders: The newest stream of each writer.
    """

    def __init__(
        self,
        intake: Intake,
        pacing: Pacing,
        commit: Callable[[Sequence[QueuedEpisode]], list[EpisodeOutcome | Exception]],
    ) -> None:
        self.intake, self._pacing, self._commit = intake, pacing, commit
        self.room, self.groups = InboxRoom(), 0
        self.senders: dict[int, Sender] = {}
        self._waiting: deque[QueuedEpisode] = deque()
        self._storing: asyncio.Task[None] | None = None

    def put(self, waiting: QueuedEpisode) -> None:
        """Add an episode whose room was taken."""
        self._waiting.append(waiting)
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store())

    def close(self, error: Exception) -> None:
        """End all streams; episodes that still wait are not stored."""
        self._waiting.clear()
        for sender in list(self.senders.values()):
            sender.fail(error)

    async def _store(self) -> None:
        """Store group after group until no episode waits.

        The group is taken once no gather runs, so that it holds all that came meanwhile; gathers
        that wait for it go first next time.
        """
        while self._waiting:
            await self._pacing.moved(lambda: not self._waiting or self._admitted() > 0)
            async with self._pacing.turn():
                group = [self._waiting.popleft() for _ in range(self._admitted())]
                if group:
                    await self._stored(group)
            await self._pacing.notify()

    def _admitted(self) -> int:
        most = self.intake.most_rows  # an episode has a row at least
        return self.intake.admitted(queued.episode for queued in islice(self._waiting, most))

    async def _stored(self, group: Sequence[QueuedEpisode]) -> None:
        outcomes: Sequence[EpisodeOutcome | Exception]
        try:
            outcomes = await asyncio.to_thread(self._commit, group)
            self.groups += 1
        except Exception as error:  # of the storage; it ends the streams, and writers send again
            outcomes = [error] * len(group)
        for (episode, sender, size_bytes), outcome in zip(group, outcomes, strict=True):
            self.room.give_back(size_bytes)
            if isinstance(outcome, Exception):
                sender.fail(outcome)
            else:
                sender.settle(episode.sequence, outcome)
