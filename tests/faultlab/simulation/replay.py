"""A simulated replay service: it outlives controllers, crashes in writes and loses replies."""

import asyncio

import numpy as np

from fullrank.common.errors import StaleTerm
from fullrank.common.failpoints import Killed
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.messages import sample_of
from fullrank.net.replay_client import AGAIN_S
from fullrank.replay.items import Gathered, Items
from fullrank.replay.samplers import Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import TABLE, Table
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Reopened, Stored, Truncated
from fullrank.v1 import common_pb2

DELAY_S = 0.01
"""Mean delay of an append, exponential."""


class SimulatedReplay:
    """One table; calls are repeated until they are answered, as by ``ReplayClient``.

    Args:
        draws: Generator of delays and lost replies.
        lost: Share of lost replies.
        event_log: The event log of the service.
    """

    def __init__(self, draws: np.random.Generator, lost: float, event_log: EventLog) -> None:
        self._draws, self._lost, self._event_log = draws, lost, event_log
        self._table: Table | None = None
        self._owner = RunTerm("", 0)

    def client(self) -> "SimulatedReplayClient":
        """A client for one controller."""
        return SimulatedReplayClient(self)

    def open_table(self, *, row_size: int, capacity: int, head: int, run_term: RunTerm) -> Table:
        """Open or truncate the table, with the semantics of the service."""
        if run_term.term <= self._owner.term:
            raise StaleTerm(f"term {self._owner.term} has opened the table")
        self._owner = run_term
        if self._table is None:
            # Twice the slots: an interrupted append overwrites no readable row.
            self._table = Table(MemoryStorage(2 * capacity, row_size), capacity=capacity)
        self._table.truncate(head)
        self._event_log.append(Truncated(table=TABLE, head=self._table.head))
        return self._table

    async def append(self, first_position: int, rows: FloatArray, run_term: RunTerm) -> int:
        """Store rows; retry after a crash or a lost reply."""
        table = self._table
        assert table is not None
        while True:
            await asyncio.sleep(self._draws.exponential(DELAY_S))
            if run_term != self._owner:
                raise StaleTerm(f"term {self._owner.term} has opened the table")
            try:
                head = table.append(first_position, rows)
                self._event_log.append(Stored(table=TABLE, first=first_position, head=head))
                if self._draws.random() >= self._lost:
                    return head
            except Killed:
                self._event_log.append(Reopened(table=TABLE, head=table.head))
            await asyncio.sleep(AGAIN_S)

    def gather(self, sample: Sample) -> FloatArray:
        """The rows of a sample."""
        assert self._table is not None
        return self._table.minibatch(sample)


class SimulatedReplayClient:
    """A controller's client of the simulated service."""

    def __init__(self, replay: SimulatedReplay) -> None:
        self._replay = replay
        self._run_term = RunTerm("", 0)

    async def open_table(
        self, *, row_size: int, capacity: int, head: int, run_term: RunTerm
    ) -> tuple[int, int]:
        """Truncate the table to ``head``; returns (tail, head)."""
        self._run_term = run_term
        table = self._replay.open_table(
            row_size=row_size, capacity=capacity, head=head, run_term=run_term
        )
        return table.tail, table.head

    async def get_sample(
        self, sample: common_pb2.Sample, *, row_size: int, items: Items = None
    ) -> Gathered:
        """Return the minibatch, all of it."""
        rows = self._replay.gather(sample_of(sample))
        return Gathered(rows, rows.nbytes)

    def drew(self, sample: Sample) -> None:
        """Do nothing: appends wait for no sample."""

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows; returns the acknowledged head."""
        return await self._replay.append(first_position, rows, self._run_term)
