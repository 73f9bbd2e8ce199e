"""A replay service without a network: it outlives controllers, dies writing, loses answers."""

import asyncio

import numpy as np

from fullrank.common.errors import Deposed
from fullrank.common.failpoints import Killed
from fullrank.common.types import FloatArray, Tenure
from fullrank.replay import TABLE, Memory, Sample, Table
from fullrank.rpc.clients import AGAIN_S
from fullrank.rpc.messages import sample_of
from fullrank.runs.event_log import Notebook, Reopened, Stored, Truncated
from fullrank.v1 import common_pb2

DELAY_S = 0.01
"""Mean of an append."""


class RehearsedReplay:
    """One table; calls are repeated until they are answered, as ``ReplayClient`` repeats them.

    Args:
        draws: Of its delays and of answers lost.
        lost: The share of answers that do not come.
        notebook: Its history.
    """

    def __init__(self, draws: np.random.Generator, lost: float, notebook: Notebook) -> None:
        self._draws, self._lost, self._notebook = draws, lost, notebook
        self._table: Table | None = None
        self._owner = Tenure("", 0)

    def client(self) -> "RehearsedReplayClient":
        """For one controller."""
        return RehearsedReplayClient(self)

    def open_table(self, *, row_size: int, capacity: int, head: int, tenure: Tenure) -> Table:
        """As the service does."""
        if tenure.term <= self._owner.term:
            raise Deposed(f"term {self._owner.term} has opened the table")
        self._owner = tenure
        if self._table is None:
            # Twice the slots: an append that is cut off overwrites nothing that can be read.
            self._table = Table(Memory(2 * capacity, row_size), capacity=capacity)
        self._table.truncate(head)
        self._notebook.note(Truncated(table=TABLE, head=self._table.head))
        return self._table

    async def append(self, first_position: int, rows: FloatArray, tenure: Tenure) -> int:
        """Store rows; a death before the answer is followed by another try."""
        table = self._table
        assert table is not None
        while True:
            await asyncio.sleep(self._draws.exponential(DELAY_S))
            if tenure != self._owner:
                raise Deposed(f"term {self._owner.term} has opened the table")
            try:
                head = table.append(first_position, rows)
                self._notebook.note(Stored(table=TABLE, first=first_position, head=head))
                if self._draws.random() >= self._lost:
                    return head
            except Killed:
                self._notebook.note(Reopened(table=TABLE, head=table.head))
            await asyncio.sleep(AGAIN_S)

    def gather(self, sample: Sample) -> FloatArray:
        """A learner's minibatch."""
        assert self._table is not None
        return self._table.minibatch(sample)


class RehearsedReplayClient:
    """What a controller holds of it."""

    def __init__(self, replay: RehearsedReplay) -> None:
        self._replay = replay
        self._tenure = Tenure("", 0)

    async def open_table(
        self, *, row_size: int, capacity: int, head: int, tenure: Tenure
    ) -> tuple[int, int]:
        """Make sure that the table ends at ``head``; returns (tail, head)."""
        self._tenure = tenure
        table = self._replay.open_table(
            row_size=row_size, capacity=capacity, head=head, tenure=tenure
        )
        return table.tail, table.head

    async def get_sample(self, sample: common_pb2.Sample, out: FloatArray) -> None:
        """Fill ``out`` with the minibatch."""
        out[:] = self._replay.gather(sample_of(sample))

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows; returns the acknowledged head."""
        return await self._replay.append(first_position, rows, self._tenure)
