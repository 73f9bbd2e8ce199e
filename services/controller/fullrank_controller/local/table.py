"""The run's table in this process, in the files of a replay service."""

import asyncio
import logging
from pathlib import Path

import numpy as np

from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, RunTerm
from fullrank.host.run_directory import lock_replay
from fullrank.replay.fence import Fence
from fullrank.replay.limits import rows_per_append
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import TABLE, Table
from fullrank.runs.events import EventLog, Reopened, Stored, Truncated

log = logging.getLogger(__name__)

FEW_BYTES = 2**16
"""Rows up to this size are checked and stored within about half a millisecond."""


class LocalTable:
    """Holds ``<run>/replay`` and reads and writes its table, with the service's semantics.

    A replay service finds every row when the run moves to services, and the other way round.

    Args:
        run_dir: Directory of the run.
        sync: Whether rows are on disk before they are acknowledged.

    Raises:
        RunDirectoryInUse: A replay service holds the directory.
    """

    def __init__(self, run_dir: Path, *, sync: bool) -> None:
        directory = run_dir / "replay"
        self._lock = lock_replay(directory)
        self._sync, self._fence, self._key = sync, Fence(directory), ""
        self._store = Store(directory, sync=sync)
        self._event_log = EventLog(run_dir, "replay")
        for name, table in self._store.tables.items():
            self._event_log.append(Reopened(table=name, head=table.head))
        for name, rows in self._store.lost.items():
            log.warning("rows_lost table=%s rows=%d", name, rows)

    def close(self) -> None:
        """Release the directory."""
        self._event_log.close()
        self._lock.close()

    @property
    def _table(self) -> Table:
        return self._store.get(self._key)

    async def open_table(
        self, *, row_size: int, capacity: int, head: int, run_term: RunTerm
    ) -> tuple[int, int]:
        """Open the table, which then ends at ``head`` or before; returns (tail, head).

        Raises:
            StaleTerm: This term has opened the table already, or a later one has.
            Corrupted: Its file is damaged.
        """
        self._key = table_key(run_term.run, TABLE)
        table = self._store.open(self._key, row_size=row_size, capacity=capacity)
        self._fence.raise_to(self._key, run_term)
        table.truncate(head)
        self._event_log.append(Truncated(table=self._key, head=table.head))
        return table.tail, table.head

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows of any size; returns the head.

        Without ``sync`` rows go to memory, which takes less than a change of threads if they are
        few.
        """
        if not self._sync and rows.nbytes <= FEW_BYTES:
            return self._append(first_position, rows)
        return await asyncio.to_thread(self._append, first_position, rows)

    def _append(self, first_position: int, rows: FloatArray) -> int:
        step, head = rows_per_append(4 * rows.shape[1]), first_position
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            self._table.append(head, block)
            reach("rows.stored")
            stored = Stored(table=self._key, first=head, head=head + len(block))
            self._event_log.append(stored)
            head += len(block)
        return head

    def holds(self, sample: Sample) -> bool:
        """Tell if all rows of a uniform sample are stored, even if its head is not reached."""
        if not sample.size or sample.searched:
            return False
        return int(sample.positions().max()) < self._table.head

    def minibatch(self, sample: Sample, *, row_size: int) -> FloatArray:
        """Return the sample's transitions, shape (size, row_size); none where learners collect."""
        if not sample.size:
            return np.empty((0, row_size), np.float32)
        if sample.head > self._table.head:  # its rows are held
            return self._table.gather(sample.positions())
        return self._table.minibatch(sample)
