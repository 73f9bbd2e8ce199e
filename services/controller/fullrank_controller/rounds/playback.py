"""Playback: plays collections, ahead of their iterations, and stores them in replay."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.staging import Grant
from fullrank.training.block_collection import KeyedCollection
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.training.rollouts import Collected
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.collectors.keyed_pool import KeyedPool
from fullrank_controller.rounds.block_audit import BlockAudit
from fullrank_controller.term import Term

CollectTask: TypeAlias = asyncio.Task[Collected]


class TransitionTable(Protocol):
    """The run's table, in a replay service or in this process."""

    async def open_table(
        self, *, row_size: int, capacity: int, head: int, run_term: RunTerm
    ) -> tuple[int, int]:
        """Open the table, which then ends at ``head`` or before; returns (tail, head).

        Raises:
            StaleTerm: This term has opened the table already, or a later one has.
        """

    async def truncate(self, head: int) -> tuple[int, int]:
        """Discard the rows from ``head`` on; returns (tail, head)."""

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows at ``first_position``; returns the acknowledged head.

        Raises:
            StaleTerm: Another controller has opened the table since.
        """


def retrieve(playing: "asyncio.Task[Any]") -> None:
    """Leave an error to the iteration that comes to the task; a run may end before."""
    if not playing.cancelled():
        playing.exception()


class Playback(ABC):
    """Plays the collections of a run, possibly ahead of their iterations, and stores them."""

    draws_again = True
    """Committed iterations are drawn again after a restart, unless their updates are kept."""

    @property
    def ahead(self) -> CollectTask | None:
        """The last collection that this process plays, or None."""
        return None

    def begin(self, iteration: int) -> object:
        """Start playing for an iteration with the current parameters, unless that was done."""
        return None

    async def play(self, iteration: int) -> None:
        """Start playing; return once nothing reads the current parameters any more."""
        self.begin(iteration)

    @abstractmethod
    async def store(self, iteration: int, first: int) -> tuple[Collected, int]:
        """Store an iteration's transitions from position ``first`` on, once they are played.

        Returns:
            The collection, and the acknowledged head.
        """

    async def store_again(
        self, iteration: int, first: int, statistics: Mapping[str, float | None]
    ) -> tuple[Collected | None, int]:
        """Store a committed iteration with these statistics once more.

        Returns:
            The collection, None where no further update will be computed over it; and the head.
        """
        return await self.store(iteration, first)

    def committed(self, iterations: int) -> None:
        """Take note of the number of durable iterations."""
        return

    async def finish(self) -> None:
        """Return when this process plays no collection."""
        return

    async def end(self) -> None:
        """Play no more, once this process plays no collection."""
        return


class OwnPlayback(Playback):
    """Plays in this process, one collection at a time.

    Args:
        term: The open parts of the term.
        table: The run's table.
    """

    def __init__(self, term: Term, table: TransitionTable) -> None:
        self._collection, self._watchdog = term.training.collector.collection, term.watchdog
        self._table = table
        self._playing: dict[int, CollectTask] = {}

    @property
    def ahead(self) -> CollectTask | None:
        """The last collection that this process plays, or None."""
        return self._playing[max(self._playing)] if self._playing else None

    def begin(self, iteration: int) -> CollectTask:
        """Start playing for an iteration with the current parameters, unless that was done."""
        if iteration not in self._playing:
            before = self._playing.get(iteration - 1)
            self._playing[iteration] = asyncio.create_task(self._play(iteration, before))
            self._playing[iteration].add_done_callback(retrieve)
        return self._playing[iteration]

    async def play(self, iteration: int) -> None:
        """Return when this process plays no collection; raises what the iteration's raised."""
        playing = self.begin(iteration)
        await self.finish()
        playing.result()

    async def _play(self, iteration: int, before: CollectTask | None) -> Collected:
        if before is not None:
            await asyncio.wait({before})
        began_at = asyncio.get_running_loop().time()
        collected = await asyncio.to_thread(self._collection.collect, iteration)
        return collected._replace(play_s=asyncio.get_running_loop().time() - began_at)

    async def store(self, iteration: int, first: int) -> tuple[Collected, int]:
        """Append an iteration's transitions, once they are played."""
        playing = self.begin(iteration)
        with self._watchdog.phase("playing"):
            collected = await asyncio.shield(playing)
        del self._playing[iteration]
        reach("transitions.played")
        return collected, await self._table.append(first, collected.rows)

    async def finish(self) -> None:
        """Return when this process plays no collection."""
        if self._playing:
            with self._watchdog.phase("playing"):
                await asyncio.wait(self._playing.values())


class _Ordered(NamedTuple):
    """An iteration that collectors play."""

    play: PlayTerms
    reports: asyncio.Task[tuple[list[BlockReport], float]]
    """Reports on its blocks, in order, and the seconds that playing took."""


class KeyedPlayback(Playback):
    """Lets collectors play the blocks of each iteration, and accepts what they have staged.

    Args:
        collection: Publishes and joins.
        table: The run's table.
        pool: The collectors.
        grant: What they may stage for an iteration.
        audit: Plays drawn blocks again before they are accepted.
    """

    def __init__(
        self,
        collection: KeyedCollection,
        table: ReplayClient,
        pool: KeyedPool,
        grant: Grant,
        *,
        audit: BlockAudit,
    ) -> None:
        self._collection, self._table = collection, table
        self._pool, self._grant, self._audit = pool, grant, audit
        self._ordered: dict[int, _Ordered] = {}

    def begin(self, iteration: int) -> _Ordered:
        """Start playing for an iteration with the current parameters, unless that was done."""
        if iteration not in self._ordered:
            play, keys = self._collection.begin(iteration), self._collection.plan.keys(iteration)
            playing = asyncio.create_task(self._play(iteration, keys, play))
            playing.add_done_callback(retrieve)
            self._ordered[iteration] = _Ordered(play, playing)
        return self._ordered[iteration]

    async def _play(
        self, iteration: int, keys: Sequence[BlockKey], play: PlayTerms
    ) -> tuple[list[BlockReport], float]:
        """Return the reports on blocks, which collectors may stage from now on, and the seconds.

        Reports of collectors that an audit convicts are void.
        """
        clock = asyncio.get_running_loop().time
        began_at = clock()
        await self._table.grant(iteration, range(self._collection.plan.blocks), self._grant)
        reports = await self._pool.play(iteration, keys, play)
        await self._audit.refuted(reports)
        return reports, clock() - began_at

    async def store(self, iteration: int, first: int) -> tuple[Collected, int]:
        """Accept an iteration's blocks, once they are played and staged."""
        ordered = self.begin(iteration)
        with self._pool.awaiting(iteration):
            reports, play_s = await asyncio.shield(ordered.reports)
            reach("transitions.played")
            rows = await self._accept(iteration, first, reports, ordered.play)
        del self._ordered[iteration]
        collected = await asyncio.to_thread(
            self._collection.join, iteration, [report.outcomes for report in reports]
        )
        return collected._replace(play_s=play_s), first + rows

    async def _accept(
        self, iteration: int, first: int, reports: list[BlockReport], play: PlayTerms
    ) -> int:
        """Accept blocks; those that are void or not staged are played again, and reported anew.

        Returns:
            The number of their rows.
        """
        while True:
            lost = [report for report in reports if report.is_void]
            if not lost:
                rows = sum(report.rows for report in reports)
                digests = [report.staged_digest for report in reports]
                unstaged = await self._table.accept(iteration, first, digests, rows=rows)
                if unstaged is None:
                    return rows
                lost = [reports[block] for block in unstaged.blocks]
                if unstaged.granted:  # else replay was started again
                    self._pool.distrust(lost)
            again, _ = await self._play(iteration, [report.key for report in lost], play)
            for report in again:
                reports[report.key.block] = report

    async def end(self) -> None:
        """Dismiss the collectors, and cancel the collections that they play."""
        self._pool.end()
        playing = [ordered.reports for ordered in self._ordered.values()]
        for reports in playing:
            reports.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await self._audit.end()
