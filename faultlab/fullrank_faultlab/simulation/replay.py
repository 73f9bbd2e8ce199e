"""A replay service without a network: it outlives controllers, dies writing, loses answers."""

import asyncio

import numpy as np

from fullrank.common.errors import StaleTerm
from fullrank.common.failpoints import Killed
from fullrank.common.types import FloatArray, RunTerm
from fullrank.replay import TABLE, Memory, Sample, Table
from fullrank.rpc.clients import AGAIN_S
from fullrank.rpc.messages import sample_of
from fullrank.runs.event_log import EventLog, Reopened, Stored, Truncated
from fullrank.v1 import common_pb2

DELAY_S = 0.01
"""Mean of an append."""


class RehearsedReplay:
    """One table; calls are repeated until they are answered, as ``ReplayClient`` repeats them.

    Args:
        draws: Of its delays and of answers lost.
        lost: The share of answers that do not come.
        event_log: Its history.
    """

    def __init__(self, draws: np.random.Generator, lost: float, event_log: EventLog) -> None:
        self._draws, self._lost, self._event_log = draws, lost, event_log
        self._table: Table | None = None
        self._owner = RunTerm("", 0)

    def client(self) -> "RehearsedReplayClient":
        """For one controller."""
        return RehearsedReplayClient(self)

    def open_table(self, *, row_size: int, capacity: int, head: int, run_term: RunTerm) -> Table:
        """As the service does."""
        if run_term.term <= self._owner.term:
            raise StaleTerm(f"term {self._owner.term} has opened the table")
        self._owner = run_term
        if self._table is None:
            # Twice the slots: an append that is cut off overwrites nothing that can be read.
            self._table = Table(Memory(2 * capacity, row_size), capacity=capacity)
        self._table.truncate(head)
        self._event_log.append(Truncated(table=TABLE, head=self._table.head))
        return self._table

    async def append(self, first_position: int, rows: FloatArray, run_term: RunTerm) -> int:
        """Store rows; a death before the answer is followed by another try."""
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
        """A learner's minibatch."""
        assert self._table is not None
        return self._table.minibatch(sample)


class RehearsedReplayClient:
    """What a controller holds of it."""

    def __init__(self, replay: RehearsedReplay) -> None:
        self._replay = replay
        self._run_term = RunTerm("", 0)

    async def open_table(
        self, *, row_size: int, capacity: int, head: int, run_term: RunTerm
    ) -> tuple[int, int]:
        """Make sure that the table ends at ``head``; returns (tail, head)."""
        self._run_term = run_term
        table = self._replay.open_table(
            row_size=row_size, capacity=capacity, head=head, run_term=run_term
        )
        return table.tail, table.head

    async def get_sample(self, sample: common_pb2.Sample, out: FloatArray) -> None:
        """Fill ``out`` with the minibatch."""
        out[:] = self._replay.gather(sample_of(sample))

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows; returns the acknowledged head."""
        return await self._replay.append(first_position, rows, self._run_term)
