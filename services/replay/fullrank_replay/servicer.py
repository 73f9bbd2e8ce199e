"""Requests to table calls, each within bounds: of time, of what waits, of what is sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, TypeVar

import google_crc32c
import grpc

from fullrank.common.errors import Corrupted, DeadlinePassed, InvalidContribution, Overloaded
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray
from fullrank.replay import RateLimiter, Sample, Table
from fullrank.rpc.codec import SAMPLE_CHUNK, encode_chunks, floats
from fullrank.rpc.errors import statuses
from fullrank.rpc.messages import sample_of, tenure_of
from fullrank.runs.event_log import EventLog, Reopened, Stored, Truncated
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.fence import Fence
from fullrank_replay.minibatches import MOST_BYTES, Minibatches
from fullrank_replay.store import Store

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
T = TypeVar("T")

APPENDS = 16
"""Appends that wait at a time, at most: 64 MiB. A controller makes one after the other."""

PATIENCE_S = 5.0
"""How long an append waits for samples, and a sample for appends."""

RETRY_AFTER_S = 1.0
"""When to try an append again that was not taken."""

SEND_S = 30.0
"""Longest that a learner may take no chunk of its minibatch."""


class ReplayServicer:
    """ReplayService over a store, written to by whom the fence admits; noted, then acknowledged.

    Attributes:
        waiting: Appends that wait or are being stored.
    """

    def __init__(self, store: Store, fence: Fence, event_log: EventLog) -> None:
        self._store, self._fence, self._event_log = store, fence, event_log
        for name, table in store.tables.items():
            event_log.append(Reopened(table=name, head=table.head))
        self._minibatches = Minibatches(self._encoded)
        self._limiters: dict[str, RateLimiter] = {}
        self.waiting = 0
        self._moved = asyncio.Condition()  # a head, of a table or of what was sampled
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
            table = self._store.open(
                request.table, row_size=request.row_size, capacity=request.capacity
            )
            await _to_the_end(self._alone(partial(self._truncate, request, table)))
            self._minibatches.clear()  # a resumed run may write other rows to the same positions
            self._limiters[request.table] = RateLimiter(window=table.capacity)
            return pb.OpenTableResponse(tail=table.tail, head=table.head)

    def _truncate(self, request: pb.OpenTableRequest, table: Table) -> None:
        self._fence.raise_to(request.table, tenure_of(request.run_term))
        table.truncate(request.head)
        self._event_log.append(Truncated(table=request.table, head=table.head))

    async def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendResponse:
        """Store and acknowledge rows."""
        async with statuses(context):
            table = self._store.get(request.table)
            if google_crc32c.value(request.rows) != request.crc32c:
                raise Corrupted("crc32c does not match rows; send them again")
            rows = floats(request.rows, row_size=table.row_size)
            if self.waiting >= APPENDS:
                raise Overloaded(
                    f"{APPENDS} appends wait already; make one after the other",
                    retry_after_s=RETRY_AFTER_S,
                )
            self.waiting += 1
            head = await _to_the_end(self._appended(request, table, rows))
            return pb.AppendResponse(head=head, repeated=table.repeated)

    async def _appended(self, request: pb.AppendRequest, table: Table, rows: FloatArray) -> int:
        """Store rows as soon as samples are not too far behind; returns the head."""
        try:
            limiter, head = self._limiter(request.table), request.first_position + len(rows)
            if not await self._until(lambda: limiter.admits(head)):
                raise Overloaded(
                    f"nobody has sampled the rows that an append up to position {head} would "
                    "evict; see what holds the learners up",
                    retry_after_s=RETRY_AFTER_S,
                )
            head = await self._alone(partial(self._append, request, table, rows))
        finally:
            self.waiting -= 1
        await self._tell()
        return head

    def _append(self, request: pb.AppendRequest, table: Table, rows: FloatArray) -> int:
        self._fence.check(request.table, tenure_of(request.run_term))
        head = table.append(request.first_position, rows)
        reach("rows.stored")
        self._event_log.append(Stored(table=request.table, first=request.first_position, head=head))
        return head

    def _limiter(self, table: str) -> RateLimiter:
        window = self._store.get(table).capacity
        return self._limiters.setdefault(table, RateLimiter(window=window))

    async def _alone(self, call: Callable[[], T]) -> T:
        """Call in a thread, nothing else beside it."""
        async with self._lock:
            return await asyncio.to_thread(call)

    async def _until(self, holds: Callable[[], bool]) -> bool:
        """Return when this holds, or when patience ends; whether it holds."""
        if holds():
            return True
        try:
            async with asyncio.timeout(PATIENCE_S), self._moved:
                return await self._moved.wait_for(holds)
        except TimeoutError:
            return False

    async def _tell(self) -> None:
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
                        await _taken(context.write(message))

    async def _admitted(self, sample: Sample) -> int:
        """Wait until a sample's head is reached; returns the bytes of its minibatch."""
        table = self._store.get(sample.table)
        await self._until(lambda: sample.head <= table.head)
        table.check(sample)
        size_bytes = 4 * sample.size * table.row_size
        if size_bytes > MOST_BYTES:
            raise InvalidContribution(
                f"sample.size {sample.size} of rows of {table.row_size} float32 exceeds "
                f"{MOST_BYTES} bytes"
            )
        return size_bytes

    async def _encoded(self, sample: Sample) -> list[bytes]:
        """Gather and encode a minibatch; then its rows may be evicted."""
        encoded = await self._alone(partial(self._gather, sample))
        self._limiter(sample.table).sampled(sample.head)
        await self._tell()
        return encoded

    def _gather(self, sample: Sample) -> list[bytes]:
        rows = self._store.get(sample.table).minibatch(sample)
        return list(map(bytes, encode_chunks(rows, array_id=0, field=SAMPLE_CHUNK)))


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await work that goes on if its caller is gone."""
    return await asyncio.shield(asyncio.create_task(work))


async def _taken(write: Awaitable[None]) -> None:
    """End a stream whose reader stands still: what it is sent takes room from others."""
    try:
        async with asyncio.timeout(SEND_S):
            await write
    except TimeoutError:
        raise DeadlinePassed(f"no chunk was taken for {SEND_S:.0f} s; ask again") from None
