"""ReplayService: requests become calls of a table, bounded in time and in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from fullrank import __version__
from fullrank.common.errors import (
    DeadlinePassed,
    InvalidContribution,
    NotFound,
    Overloaded,
    StaleTerm,
)
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.fence import Fence
from fullrank.replay.intake import Intake
from fullrank.replay.items import Items, rows_of_items
from fullrank.replay.limits import rows_per_minibatch
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store
from fullrank.replay.table import Table
from fullrank.rpc.codec import SAMPLE_CHUNK, encode_chunks
from fullrank.rpc.errors import Context, statuses
from fullrank.rpc.messages import arrival_of, run_term_of, sample_of
from fullrank.rpc.version import check_version
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Reopened, Stored, Truncated
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.appends import (
    RETRY_AFTER_S,
    AppendRoom,
    check_total,
    drain,
    first_message,
    receive_rows,
)
from fullrank_replay.minibatches import Minibatches, Rows
from fullrank_replay.pacing import Pacing
from fullrank_replay.writes import Writes

T = TypeVar("T")

SEND_S = 30.0
"""Longest pause of a learner between two chunks of its minibatch."""

_READABLE = pb.GetSamplesResponse().SerializeToString()
"""Tells a learner to gather a minibatch from the mapped file."""


class ReplayServicer:
    """ReplayService over a store; the fence admits one controller for each table.

    Args:
        store: The tables.
        fence: Admits the controller that opened a table last.
        event_log: Records what is stored, before it is acknowledged.
    """

    def __init__(self, store: Store, fence: Fence, event_log: EventLog) -> None:
        self._store, self._fence, self._event_log = store, fence, event_log
        for name, table in store.tables.items():
            event_log.append(Reopened(table=name, head=table.head))
        self._minibatches = Minibatches(self._gathered)
        self._pacing = Pacing()
        self._room = AppendRoom()
        self._writes = Writes(store, fence, self._pacing, event_log)

    async def OpenTable(
        self, request: pb.OpenTableRequest, context: Context
    ) -> pb.OpenTableResponse:
        """Make or find a table."""
        async with statuses(context):
            if not (
                request.table and request.row_size and request.capacity and request.run_term.run
            ):
                raise InvalidContribution("table, row_size, capacity and run_term must be given")
            check_version(request.version, peer="controller", own="replay service")
            table = self._store.open(
                request.table, row_size=request.row_size, capacity=request.capacity
            )
            await _shielded(self._open(request, table))
            return pb.OpenTableResponse(tail=table.tail, head=table.head, version=__version__)

    async def _open(self, request: pb.OpenTableRequest, table: Table) -> None:
        """Open a table; what was held for the controller before is given up."""
        intake = await self._pacing.locked(partial(self._opened, request, table))
        self._writes.opened(request.table, intake)
        self._minibatches.clear()  # a resumed run may write other rows to these positions
        self._pacing.restart(request.table)
        await self._pacing.notify()

    def _opened(self, request: pb.OpenTableRequest, table: Table) -> Intake | None:
        """Admit the controller; a table that it writes by position ends where it goes on."""
        run_term = run_term_of(request.run_term)
        if not request.HasField("arrival"):
            self._fence.raise_to(request.table, run_term)
            table.truncate(request.head)
            self._event_log.append(Truncated(table=request.table, head=table.head))
            return None
        arrival = arrival_of(request.arrival, row_size=request.row_size)
        intake = Intake(table, arrival)
        self._fence.raise_to(request.table, run_term, arrival=arrival.to_json())
        return intake

    @property
    def waiting(self) -> int:
        """Appends that are received, wait or are being stored."""
        return self._room.count

    async def Append(
        self, requests: AsyncIterator[pb.AppendRequest], context: Context
    ) -> pb.AppendResponse:
        """Receive, store and acknowledge rows."""
        async with statuses(context):
            messages = aiter(requests)
            request = await first_message(messages)
            try:
                rows, room = await self._receive(request, messages)
            except (InvalidContribution, NotFound, Overloaded, StaleTerm):
                await drain(messages)
                raise
            table = self._store.get(request.table)
            head = await _shielded(self._store_rows(request, table, rows, room))
            return pb.AppendResponse(head=head, repeated=table.repeated)

    async def _receive(
        self, request: pb.AppendRequest, messages: AsyncIterator[pb.AppendRequest]
    ) -> tuple[FloatArray, ExitStack]:
        """The rows of an append, and the room that they occupy until the stack is closed."""
        row_size, total = self._store.get(request.table).row_size, request.chunk.total
        check_total(total, row_size=row_size)
        with ExitStack() as room:
            room.enter_context(self._room.lent(total))
            self._fence.check(request.table, run_term_of(request.run_term))
            if self._fence.arrival(request.table) is not None:
                raise InvalidContribution(f"table {request.table!r} grows by arrival: use Write")
            rows = await receive_rows(request, messages, row_size=row_size)
            return rows, room.pop_all()

    async def _store_rows(
        self, request: pb.AppendRequest, table: Table, rows: FloatArray, room: ExitStack
    ) -> int:
        """Store rows as soon as samples are not too far behind; returns the head."""
        with room:
            limiter = self._pacing.limiter(request.table, window=table.capacity)
            head = request.first_position + len(rows)
            if not await self._pacing.until(lambda: limiter.admits(head)):
                raise Overloaded(
                    f"no sample has been able to draw the rows that an append up to position "
                    f"{head} would evict; see what holds the learners up",
                    retry_after_s=RETRY_AFTER_S,
                )
            head = await self._pacing.locked(partial(self._append, request, table, rows))
        await self._pacing.notify()
        return head

    def _append(self, request: pb.AppendRequest, table: Table, rows: FloatArray) -> int:
        self._fence.check(request.table, run_term_of(request.run_term))
        head = table.append(request.first_position, rows)
        reach("rows.stored")
        self._event_log.append(Stored(table=request.table, first=request.first_position, head=head))
        return head

    async def Write(self, requests: AsyncIterator[pb.WriteRequest], context: Context) -> None:
        """Store the episodes of one writer."""
        async with statuses(context):
            await self._writes.serve(
                aiter(requests), lambda response: _written(context.write(response))
            )

    async def AwaitDraw(
        self, request: pb.AwaitDrawRequest, context: Context
    ) -> pb.AwaitDrawResponse:
        """Tell how far the table reaches once an iteration may begin."""
        async with statuses(context):
            return await self._writes.await_draw(request)

    async def LocateTable(
        self, request: pb.LocateTableRequest, context: Context
    ) -> pb.LocateTableResponse:
        """Return path and id of a table's file."""
        async with statuses(context):
            await self._pacing.until(lambda: request.table in self._store.tables)
            location = self._store.location(request.table)
            return pb.LocateTableResponse(path=location.path, instance=location.instance)

    async def GetSamples(
        self, requests: AsyncIterator[pb.GetSamplesRequest], context: Context
    ) -> None:
        """Write the items asked for, or that their rows can be gathered from the mapped file."""
        async with statuses(context):
            async for request in requests:
                sample = sample_of(request.sample)
                size_bytes = await self._admitted(sample)
                with self._minibatches.lent(sample, size_bytes=size_bytes) as minibatch:
                    location = self._store.location(sample.table)
                    if request.mapped and request.mapped == location.instance:
                        await minibatch.gathered()  # evicted rows can still be sent
                        await _written(context.write(_READABLE))
                        continue
                    items = tuple(request.items) or None
                    for message in await minibatch.encoded(_encode, items):
                        await _written(context.write(message))

    async def _admitted(self, sample: Sample) -> int:
        """Wait until a sample's head is reached; returns the size of its minibatch in bytes."""
        table = self._store.get(sample.table)
        await self._pacing.until(lambda: sample.head <= table.head)
        table.check(sample)
        row_bytes, rows = 4 * table.row_size, sample.size
        if sample.episodes is not None and rows <= rows_per_minibatch(row_bytes):
            runs = await self._pacing.locked(partial(table.runs, sample))
            rows = int(runs.lengths.sum())
        if rows > (most := rows_per_minibatch(row_bytes)):
            raise InvalidContribution(
                f"sample.size is {sample.size}, which makes {rows} rows; of rows of {row_bytes} "
                f"bytes a minibatch has at most {most}"
            )
        return row_bytes * rows

    async def _gathered(self, sample: Sample) -> Rows:
        """Gather all items of a minibatch; then its rows may be evicted."""
        table = self._store.get(sample.table)
        rows = await self._pacing.locked(partial(_gather, table, sample))
        self._pacing.limiter(sample.table, window=table.capacity).sampled(sample.head)
        self._writes.gathered(sample.table, sample.iteration)
        await self._pacing.notify()
        return rows


def _gather(table: Table, sample: Sample) -> Rows:
    runs = table.runs(sample)
    return table.gather(runs.positions()), runs.lengths


def _encode(rows: FloatArray, lengths: IntArray, items: Items) -> list[bytes]:
    """Encode the rows of these items; for some of them, the lengths of all come first."""
    if items is None:
        return list(map(bytes, encode_chunks(rows, array_id=0, field=SAMPLE_CHUNK)))
    chosen = rows[rows_of_items(lengths, items)]
    facts = pb.GetSamplesResponse(lengths=lengths.tolist()).SerializeToString()
    first, *others = map(bytes, encode_chunks(chosen, array_id=0, field=SAMPLE_CHUNK))
    return [facts + first, *others]


async def _shielded(work: Coroutine[Any, Any, T]) -> T:
    """Await work that continues if its caller is cancelled."""
    return await asyncio.shield(asyncio.create_task(work))


async def _written(write: Awaitable[None]) -> None:
    """Await a write; end the stream if its reader stalls, since the chunks occupy memory."""
    try:
        async with asyncio.timeout(SEND_S):
            await write
    except TimeoutError:
        raise DeadlinePassed(f"no chunk was taken for {SEND_S:.0f} s; ask again") from None
