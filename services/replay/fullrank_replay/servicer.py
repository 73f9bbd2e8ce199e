"""ReplayService: requests become calls of a table, bounded in time and in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias, TypeVar

import grpc

from fullrank import __version__
from fullrank.common.errors import (
    DeadlinePassed,
    InvalidContribution,
    NotFound,
    Overloaded,
    StaleTerm,
)
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray
from fullrank.replay import RateLimiter, Sample, Table
from fullrank.replay.limits import rows_per_minibatch
from fullrank.rpc.codec import SAMPLE_CHUNK, encode_chunks
from fullrank.rpc.errors import statuses
from fullrank.rpc.messages import run_term_of, sample_of
from fullrank.rpc.version import check_version
from fullrank.runs.event_log import EventLog, Reopened, Stored, Truncated
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.appends import (
    RETRY_AFTER_S,
    AppendRoom,
    check_total,
    drain,
    first_message,
    receive_rows,
)
from fullrank_replay.fence import Fence
from fullrank_replay.minibatches import Minibatches
from fullrank_replay.store import Store

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")

PATIENCE_S = 5.0
"""Longest wait of an append for samples, and of a sample for appends."""

SEND_S = 30.0
"""Longest pause of a learner between two chunks of its minibatch."""


class ReplayServicer:
    """ReplayService over a store; the fence admits one writer for each table.

    Args:
        store: The tables.
        fence: Admits the controller that opened a table last.
        event_log: Records what is stored, before it is acknowledged.
    """

    def __init__(self, store: Store, fence: Fence, event_log: EventLog) -> None:
        self._store, self._fence, self._event_log = store, fence, event_log
        for name, table in store.tables.items():
            event_log.append(Reopened(table=name, head=table.head))
        self._minibatches = Minibatches(self._encoded)
        self._limiters: dict[str, RateLimiter] = {}
        self._room = AppendRoom()
        self._moved = asyncio.Condition()  # the head of a table, or that of its newest sample
        self._lock = asyncio.Lock()  # an append may evict rows that are being gathered

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
            await _shielded(self._locked(partial(self._truncate, request, table)))
            self._minibatches.clear()  # a resumed run may write other rows to these positions
            self._limiters[request.table] = RateLimiter(window=table.capacity)
            return pb.OpenTableResponse(tail=table.tail, head=table.head, version=__version__)

    def _truncate(self, request: pb.OpenTableRequest, table: Table) -> None:
        self._fence.raise_to(request.table, run_term_of(request.run_term))
        table.truncate(request.head)
        self._event_log.append(Truncated(table=request.table, head=table.head))

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
            rows = await receive_rows(request, messages, row_size=row_size)
            return rows, room.pop_all()

    async def _store_rows(
        self, request: pb.AppendRequest, table: Table, rows: FloatArray, room: ExitStack
    ) -> int:
        """Store rows as soon as samples are not too far behind; returns the head."""
        with room:
            limiter, head = self._limiter(request.table), request.first_position + len(rows)
            if not await self._until(lambda: limiter.admits(head)):
                raise Overloaded(
                    f"no sample has been able to draw the rows that an append up to position "
                    f"{head} would evict; see what holds the learners up",
                    retry_after_s=RETRY_AFTER_S,
                )
            head = await self._locked(partial(self._append, request, table, rows))
        await self._notify()
        return head

    def _append(self, request: pb.AppendRequest, table: Table, rows: FloatArray) -> int:
        self._fence.check(request.table, run_term_of(request.run_term))
        head = table.append(request.first_position, rows)
        reach("rows.stored")
        self._event_log.append(Stored(table=request.table, first=request.first_position, head=head))
        return head

    def _limiter(self, table: str) -> RateLimiter:
        window = self._store.get(table).capacity
        return self._limiters.setdefault(table, RateLimiter(window=window))

    async def _locked(self, call: Callable[[], T]) -> T:
        """Call in a thread, one call at a time."""
        async with self._lock:
            return await asyncio.to_thread(call)

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Wait up to ``PATIENCE_S`` for the condition; returns whether it holds."""
        if holds():
            return True
        try:
            async with asyncio.timeout(PATIENCE_S), self._moved:
                return await self._moved.wait_for(holds)
        except TimeoutError:
            return False

    async def _notify(self) -> None:
        async with self._moved:
            self._moved.notify_all()

    async def GetSamples(
        self, requests: AsyncIterator[pb.GetSamplesRequest], context: Context
    ) -> None:
        """Write the encoded chunks of each minibatch asked for."""
        async with statuses(context):
            async for request in requests:
                sample = sample_of(request.sample)
                size_bytes = await self._admitted(sample)
                with self._minibatches.lent(sample, size_bytes=size_bytes) as encoded:
                    for message in await asyncio.shield(encoded):
                        await _written(context.write(message))

    async def _admitted(self, sample: Sample) -> int:
        """Wait until a sample's head is reached; returns the size of its minibatch in bytes."""
        table = self._store.get(sample.table)
        await self._until(lambda: sample.head <= table.head)
        table.check(sample)
        row_bytes = 4 * table.row_size
        if sample.size > (most := rows_per_minibatch(row_bytes)):
            raise InvalidContribution(
                f"sample.size is {sample.size}; of rows of {row_bytes} bytes a minibatch has at "
                f"most {most}"
            )
        return row_bytes * sample.size

    async def _encoded(self, sample: Sample) -> list[bytes]:
        """Gather and encode a minibatch; then its rows may be evicted."""
        encoded = await self._locked(partial(self._gather, sample))
        self._limiter(sample.table).sampled(sample.head)
        await self._notify()
        return encoded

    def _gather(self, sample: Sample) -> list[bytes]:
        rows = self._store.get(sample.table).minibatch(sample)
        return list(map(bytes, encode_chunks(rows, array_id=0, field=SAMPLE_CHUNK)))


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
