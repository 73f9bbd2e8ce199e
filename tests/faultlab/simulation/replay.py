"""A simulated replay service: it outlives controllers, crashes in writes and loses replies."""

import asyncio
from collections.abc import Sequence

import numpy as np

from fullrank.common.errors import StaleTerm
from fullrank.common.failpoints import Killed
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.messages import sample_of
from fullrank.net.replay_calls import AGAIN_S
from fullrank.net.replay_client import Unstaged
from fullrank.replay.items import Gathered, Items
from fullrank.replay.samplers import Sample
from fullrank.replay.staging import Grant, Staging, judged
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import TABLE, Table
from fullrank.runs.events import EventLog, Reopened, Stored, Truncated
from fullrank.training.blocks import BlockKey
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
        self._staging = Staging()

    def client(self) -> "SimulatedReplayClient":
        """A client for one controller."""
        return SimulatedReplayClient(self)

    def open_table(self, *, row_size: int, capacity: int, head: int, run_term: RunTerm) -> Table:
        """Open or truncate the table, with the semantics of the service."""
        if run_term.term <= self._owner.term:
            raise StaleTerm(f"term {self._owner.term} has opened the table")
        self._owner, self._staging = run_term, Staging()
        if self._table is None:
            # Twice the slots: an interrupted append overwrites no readable row.
            self._table = Table(MemoryStorage(2 * capacity, row_size), capacity=capacity)
        return self.truncate(head, run_term)

    def truncate(self, head: int, run_term: RunTerm) -> Table:
        """Discard the rows from ``head`` on."""
        self.confirm(run_term)
        assert self._table is not None
        self._table.truncate(head)
        self._event_log.append(Truncated(table=TABLE, head=self._table.head))
        return self._table

    async def append(self, first_position: int, rows: FloatArray, run_term: RunTerm) -> int:
        """Store rows; retry after a crash or a lost reply."""
        table = self._table
        assert table is not None
        while True:
            await asyncio.sleep(self._draws.exponential(DELAY_S))
            self.confirm(run_term)
            try:
                head = table.append(first_position, rows)
                self._event_log.append(Stored(table=TABLE, first=first_position, head=head))
                if self._draws.random() >= self._lost:
                    return head
            except Killed:
                self._staging = Staging()
                self._event_log.append(Reopened(table=TABLE, head=table.head))
            await asyncio.sleep(AGAIN_S)

    def confirm(self, run_term: RunTerm) -> None:
        """Raise ``StaleTerm`` if another term has opened the table."""
        if run_term != self._owner:
            raise StaleTerm(f"term {self._owner.term} has opened the table")

    def grant(self, iteration: int, blocks: range, grant: Grant, run_term: RunTerm) -> None:
        """Let the blocks of an iteration be staged."""
        self.confirm(run_term)
        self._staging.grant(iteration, blocks, grant)

    def stage(
        self, key: BlockKey, rows: FloatArray, lengths: Sequence[int], run_term: RunTerm
    ) -> None:
        """Stage a block, with the semantics of the service."""
        self.confirm(run_term)
        grant = self._staging.granted(*key, len(rows))
        digest = judged(rows, lengths, grant.episodes)
        self._staging.keep(*key, digest, rows)

    async def accept(
        self, iteration: int, first_position: int, digests: Sequence[bytes], run_term: RunTerm
    ) -> Unstaged | None:
        """Store the staged blocks of an iteration, or say which are missing."""
        self.confirm(run_term)
        assert self._table is not None
        staged = self._staging.staged(iteration, 0, digests)
        blocks = [rows for rows in staged if rows is not None]
        if len(blocks) < len(staged):
            missing = [block for block, rows in enumerate(staged) if rows is None]
            granted = self._staging.is_granted(iteration, 0)
            return Unstaged(missing, granted, self._table.head)
        for rows in blocks:
            await self.append(first_position, rows, run_term)
            first_position += len(rows)
        self._staging.accepted(iteration, 0)
        return None

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

    async def confirm(self) -> None:
        """Return if no later controller has opened the table since."""
        self._replay.confirm(self._run_term)

    async def truncate(self, head: int) -> tuple[int, int]:
        """Discard the rows from ``head`` on; returns (tail, head)."""
        table = self._replay.truncate(head, self._run_term)
        return table.tail, table.head

    async def await_sample(
        self, sample: common_pb2.Sample, *, row_size: int, items: Items = None
    ) -> Gathered:
        """Return the minibatch, all of it."""
        return await self.get_sample(sample, row_size=row_size, items=items)

    async def get_sample(
        self, sample: common_pb2.Sample, *, row_size: int, items: Items = None
    ) -> Gathered:
        """Return the minibatch, all of it."""
        rows = self._replay.gather(sample_of(sample))
        return Gathered(rows, rows.nbytes)

    def drew(self, sample: Sample) -> None:
        """Do nothing: appends wait for no sample."""

    async def grant(self, iteration: int, blocks: range, grant: Grant) -> None:
        """Let the blocks of an iteration be staged."""
        self._replay.grant(iteration, blocks, grant, self._run_term)

    async def accept(
        self, iteration: int, first_position: int, digests: Sequence[bytes], *, rows: int
    ) -> Unstaged | None:
        """Store the staged blocks of an iteration, or return those that are missing."""
        return await self._replay.accept(iteration, first_position, digests, self._run_term)

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows; returns the acknowledged head."""
        return await self._replay.append(first_position, rows, self._run_term)
