"""Rows of replay in the run's store: stored before what draws from them, and given back if lost."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from fullrank.common.errors import Corrupted
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.samplers import EachOnce, Sample
from fullrank.replay.table import TABLE
from fullrank.runs.log import end_of
from fullrank.runs.store import CHUNK_BYTES, SharedStore

log = logging.getLogger(__name__)


class StoredRows:
    """The rows of a run's table in its store.

    Args:
        store: The store.
        table: The table.
        drawn: Rows before a collection from which later iterations draw, at most.
        row_size: Entries of a row.
        each: True if rows cannot be played again, and each iteration stores its own.

    Attributes:
        each: As given.
    """

    def __init__(
        self, store: SharedStore, table: ReplayClient, *, drawn: int, row_size: int, each: bool
    ) -> None:
        self._store, self._table = store, table
        self._drawn, self._row_size = drawn, row_size
        self.each, self._reads = each and bool(drawn), 0
        self._step = max(1, CHUNK_BYTES // (4 * row_size))
        self._tail = self._next = 0
        self._taken = deque[tuple[int, FloatArray]]()

    @property
    def reading(self) -> bool:
        """True while replay is asked for rows."""
        return self._reads > 0

    async def recover(
        self, tail: int, held: int, *, head: int, report: Callable[[str], None]
    ) -> tuple[int, int, str]:
        """Give replay the rows that it lacks.

        Args:
            tail: Oldest position that it holds.
            held: One past the newest position that it holds.
            head: Position from which the run goes on.
            report: Takes the progress.

        Returns:
            Tail and head of the table, and why it still lacks rows.

        Raises:
            StorageFailed: The store cannot be reached.
        """
        oldest = max(0, head - self._drawn)
        first = held if tail <= oldest <= held else oldest
        needed = [each for each in self._store.log.rows if each.last > first and each.first < head]
        gaps = any(one.last != other.first for one, other in pairwise(needed))
        if first < head and (not needed or gaps):
            return tail, held, f"the store lacks rows of the positions {first} to {head - 1}"
        lacking = ""
        if needed and needed[0].first > first:
            lacking = f"the store lacks rows of the positions {first} to {needed[0].first - 1}"
            first = needed[0].first
        if held != first or tail > oldest:
            if held < first:
                await self._table.truncate(0)
            tail, held = await self._table.truncate(first)
        try:
            for segment in needed:
                rows = await asyncio.to_thread(self._store.read_rows, segment)
                held = await self._table.append(
                    held, rows[held - segment.first : head - segment.first]
                )
                reach("rows.restored")
                report(f"{held - first} of {head - first} rows restored from the store")
        except Corrupted as error:
            log.error("rows_not_restored %s", error)
            return tail, held, str(error)
        log.info("rows_restored first=%d last=%d", first, head)
        return tail, held, lacking if held == head else f"the store ends at position {held - 1}"

    def opened(self, tail: int, head: int) -> None:
        """Take note of the positions with which the table was opened."""
        self._store.keep_rows(head if head > tail else 0)
        self._tail, self._next = tail, max(tail, end_of(self._store.log.rows))

    async def lost(self) -> None:
        """Store that rows are lost for good, before others take their places."""
        await asyncio.to_thread(self._store.keep)

    async def store(self, head: int) -> None:
        """Store the rows from which checkpoints draw, of which the newest ends at ``head``."""
        planned = await asyncio.to_thread(
            self._store.plan,
            head=head,
            tail=self._tail,
            drawn=self._drawn,
            row_bytes=4 * self._row_size,
        )
        for first, last in planned:
            rows = await self._logged(first, last) if self.each else None
            rows = await self._read(first, last) if rows is None else rows
            await asyncio.to_thread(self._store.put_rows, first, rows)

    async def _logged(self, first: int, last: int) -> FloatArray | None:
        """Read rows from entries of the log, as replay may have evicted them; None if they lack."""
        within = [each for each in self._store.log.rows if each.last > first and each.first < last]
        try:
            parts = [
                (await asyncio.to_thread(self._store.read_rows, each))[
                    max(0, first - each.first) : last - each.first
                ]
                for each in within
            ]
        except Corrupted as error:
            log.warning("rows_unreadable reason=%s; replay is asked for them", error)
            return None
        return np.concatenate(parts) if sum(map(len, parts)) == last - first else None

    async def take(self, head: int) -> None:
        """Read what an iteration draws from and is not stored, before replay may evict it.

        While nothing else waits, all but the last part is stored at once: after a run has begun to
        use a store that is its whole table.

        Args:
            head: One past the last position that it draws from.
        """
        first = max(self._next, head - self._drawn) if self.each else head
        for start in range(first, head, self._step):
            last = min(head, start + self._step)
            rows = await self._read(start, last)
            if last == head or self._taken:
                self._taken.append((start, rows))
            else:
                await asyncio.to_thread(self._store.ship_rows, start, rows)
        self._next = max(self._next, head)

    def ship(self, head: int) -> None:
        """Write the journal's records to the store, with the rows that were taken before ``head``.

        Raises:
            StaleTerm: A later controller has begun a term; they are not part of the run.
            StorageFailed: The store does not take it.
        """
        parts = [part for part in list(self._taken) if part[0] < head]  # ``take`` may add others
        for part in parts[:-1]:
            self._store.ship_rows(*part)
        self._store.ship(*(parts[-1] if parts else ()))
        for _ in parts:
            self._taken.popleft()

    async def _read(self, first: int, last: int) -> FloatArray:
        """Read consecutive rows from replay, however long it is away: a sample of each once."""
        sample = Sample(
            table=TABLE,
            seed=0,
            iteration=0,
            tail=first,
            head=last,
            size=last - first,
            once=EachOnce(collection=0, epoch=0, part=0),
        )
        self._reads += 1
        try:
            drawn = await self._table.await_sample(sample_message(sample), row_size=self._row_size)
        finally:
            self._reads -= 1
        rows = np.empty_like(drawn.rows)
        rows[sample.positions() - first] = drawn.rows
        return rows
