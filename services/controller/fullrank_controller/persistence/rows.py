"""Rows of replay in the run's store: stored before what draws from them, and given back if lost."""

import asyncio
import logging
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
        reading: True while replay is asked for rows.
    """

    def __init__(
        self,
        store: SharedStore,
        table: ReplayClient,
        *,
        drawn: int,
        row_size: int,
        each: bool,
    ) -> None:
        self._store, self._table = store, table
        self._drawn, self._row_size = drawn, row_size
        self.each, self.reading = each and bool(drawn), False
        self._tail = 0

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
        needed = [each for each in self._store.rows if each.last > first and each.first < head]
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
        self._tail = tail
        self._store.keep_rows(head if head > tail else 0)

    async def lost(self) -> None:
        """Store that rows are lost for good, before others take their places."""
        await asyncio.to_thread(self._store.ship)

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
            rows = await self._read(first, last)
            await asyncio.to_thread(self._store.put_rows, first, rows)

    async def since(self, head: int) -> tuple[int, FloatArray]:
        """Return the first position that is not stored, and the rows from there to ``head``."""
        first = min(head, max(end_of(self._store.rows), self._tail, head - self._drawn))
        step = max(1, CHUNK_BYTES // (4 * self._row_size))
        parts = [
            await self._read(start, min(head, start + step)) for start in range(first, head, step)
        ]
        return first, np.concatenate([np.empty((0, self._row_size), np.float32), *parts])

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
        self.reading = True
        try:
            drawn = await self._table.await_sample(sample_message(sample), row_size=self._row_size)
        finally:
            self.reading = False
        rows = np.empty_like(drawn.rows)
        rows[sample.positions() - first] = drawn.rows
        return rows
