"""ReplayService: requests become calls of tables, bounded in time and in memory."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message

from fullrank import __version__
from fullrank.common.errors import Corrupted, DeadlinePassed, InvalidContribution, Overloaded
from fullrank.common.types import FloatArray, IntArray
from fullrank.net.codec import SAMPLE_CHUNK, encode_chunks
from fullrank.net.errors import Context
from fullrank.net.messages import check_version, run_term_message, run_term_of, sample_of
from fullrank.replay.fence import Fence
from fullrank.replay.items import Items, rows_of_items
from fullrank.replay.limits import MINIBATCH_BYTES, POSITIONS, rows_per_minibatch
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import Table
from fullrank.runs.events import EventLog, Reopened, Truncated
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.appends import Appends, StagedBlocks, first_message
from fullrank_replay.pacing import Pacing, shielded

log = logging.getLogger(__name__)

T = TypeVar("T")

GatheredRows: TypeAlias = tuple[FloatArray, IntArray]
"""The rows of all items of a sample, shape (rows, row_size), and the number of rows of each."""

EncodeItems: TypeAlias = Callable[[FloatArray, IntArray, Items], list[bytes]]
"""Encodes the rows of some items as messages."""

KEPT = 2
"""Minibatches of a table that are kept: the current iteration's, and the previous one for late
learners."""

COPIES = 4
"""Bytes of encoded items that are kept with a minibatch, at most, as a multiple of its size."""

RETRY_AFTER_S = 1.0
"""Seconds after which a refused minibatch may be asked for again."""


@dataclass(slots=True)
class CachedMinibatch:
    """A minibatch, and the number of learners to which it is being sent."""

    rows: asyncio.Task[GatheredRows]
    size_bytes: int
    readers: int = 0
    _messages: dict[Items, list[bytes]] = field(default_factory=dict)

    async def gathered(self) -> GatheredRows:
        """Return the rows of all items."""
        return await asyncio.shield(self.rows)

    async def encoded(self, encode: EncodeItems, items: Items) -> list[bytes]:
        """Return the rows of these items as messages, which are encoded once."""
        rows, lengths = await self.gathered()
        if items not in self._messages:
            self._messages[items] = encode(rows, lengths, items)
            self._forget_oldest()
        return self._messages[items]

    def _forget_oldest(self) -> None:
        kept = {items: sum(map(len, messages)) for items, messages in self._messages.items()}
        while len(kept) > 1 and sum(kept.values()) > COPIES * self.size_bytes:
            oldest = next(iter(kept))
            del kept[oldest], self._messages[oldest]


class Minibatches:
    """Minibatches by sample.

    Args:
        gather: Gathers the rows of one.
    """

    def __init__(self, gather: Callable[[Sample], Coroutine[None, None, GatheredRows]]) -> None:
        self._gather = gather
        self._held: dict[Sample, CachedMinibatch] = {}

    def clear(self, table: str) -> None:
        """Forget a table's minibatches: from now on the same samples draw other rows."""
        self._held = {key: held for key, held in self._held.items() if key.table != table}

    @contextmanager
    def lent(self, sample: Sample, *, size_bytes: int) -> Iterator[CachedMinibatch]:
        """A minibatch of ``size_bytes``, kept while it is sent.

        Raises:
            Overloaded: The minibatches that are being sent leave no room for it.
        """
        minibatch = self._held.get(sample) or self._begun(sample, size_bytes)
        minibatch.readers += 1
        try:
            yield minibatch
        finally:
            minibatch.readers -= 1
            self._forget(keep=KEPT, of=sample.table)

    def _begun(self, sample: Sample, size_bytes: int) -> CachedMinibatch:
        self._forget(keep=KEPT - 1, of=sample.table)
        if self._held_bytes + size_bytes > MINIBATCH_BYTES:
            self._forget(keep=0)
        if self._held and self._held_bytes + size_bytes > MINIBATCH_BYTES:
            raise Overloaded(
                f"{self._held_bytes} bytes of minibatches are being sent, there is no room for "
                f"{size_bytes} more; ask again",
                retry_after_s=RETRY_AFTER_S,
            )
        minibatch = CachedMinibatch(asyncio.create_task(self._gather(sample)), size_bytes)
        self._held[sample] = minibatch
        return minibatch

    @property
    def _held_bytes(self) -> int:
        return sum(minibatch.size_bytes for minibatch in self._held.values())

    def _forget(self, *, keep: int, of: str | None = None) -> None:
        """Drop the oldest minibatches without readers, of a table or of all, but for ``keep``."""
        held = [sample for sample in self._held if of in (None, sample.table)]
        surplus = len(held) - keep
        idle = [sample for sample in held if not self._held[sample].readers]
        for sample in idle[: max(0, surplus)]:
            del self._held[sample]


SendEncoded: TypeAlias = Callable[[bytes], Awaitable[None]]


class Reads:
    """Minibatches of all tables.

    Args:
        store: The tables.
        pacing: Admits gathers between appends.

    Attributes:
        minibatches: Those that are held.
    """

    def __init__(self, store: Store, pacing: Pacing) -> None:
        self._store, self._pacing = store, pacing
        self.minibatches = Minibatches(self._gathered)

    async def serve(self, requests: AsyncIterator[pb.GetSamplesRequest], send: SendEncoded) -> None:
        """Send the items asked for.

        Raises:
            FullrankError: The stream ends with an error.
        """
        async for request in requests:
            key = table_key(request.run, request.sample.table)
            sample = replace(sample_of(request.sample), table=key)
            size_bytes = await self._admitted(sample)
            with self.minibatches.lent(sample, size_bytes=size_bytes) as minibatch:
                items = tuple(request.items) or None
                for message in await minibatch.encoded(_encode, items):
                    await send(message)

    async def _admitted(self, sample: Sample) -> int:
        """Wait until a sample's head is reached; returns the size of its minibatch in bytes."""
        table = self._store.get(sample.table)
        await self._pacing.until(lambda: sample.head <= table.head)
        table.check(sample)
        row_bytes, rows = 4 * table.row_size, sample.size
        if sample.draw.searched and rows <= rows_per_minibatch(row_bytes):
            runs = await self._read(sample.table, partial(table.runs, sample))
            rows = int(runs.lengths.sum())
        if rows > (most := rows_per_minibatch(row_bytes)):
            raise InvalidContribution(
                f"sample.size is {sample.size}, which makes {rows} rows; of rows of {row_bytes} "
                f"bytes a minibatch has at most {most}"
            )
        return row_bytes * rows

    async def _gathered(self, sample: Sample) -> GatheredRows:
        """Gather all items of a minibatch; then its rows may be evicted."""
        table = self._store.get(sample.table)
        rows = await self._read(sample.table, partial(_gather, table, sample))
        self._pacing.limiter(sample.table, window=table.capacity).sampled(sample.head)
        await self._pacing.notify()
        return rows

    async def _read(self, key: str, call: Callable[[], T]) -> T:
        """Read a table in turn; one that is found damaged is unusable from then on."""
        try:
            return await self._pacing.locked(call)
        except Corrupted as error:
            log.error("table_unusable table=%s reason=%s", key, error)
            self._store.unusable[key] = error
            raise


def _gather(table: Table, sample: Sample) -> GatheredRows:
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


SEND_S = 30.0
"""Longest pause of a learner between two chunks of its minibatch."""


class ReplayServicer:
    """ReplayService over a store; the fence admits one controller of its run for each table.

    Args:
        store: The tables.
        fence: Admits the controller that opened a table last.
        event_log: Records stored rows before they are acknowledged.

    Attributes:
        ended: Set once a run has ended while no other is open.
    """

    def __init__(self, store: Store, fence: Fence, event_log: EventLog) -> None:
        self._store, self._fence, self._event_log = store, fence, event_log
        self.ended = asyncio.Event()
        for name, table in store.tables.items():
            event_log.append(Reopened(table=name, head=table.head))
        self._pacing = Pacing()
        self._appends = Appends(store, fence, self._pacing, event_log)
        self._blocks = StagedBlocks(store, fence, self._appends)
        self._reads = Reads(store, self._pacing)

    async def OpenTable(
        self, request: pb.OpenTableRequest, context: Context
    ) -> pb.OpenTableResponse:
        """Make or find a table."""
        if not (request.row_size and request.capacity):
            raise InvalidContribution("row_size and capacity must be given")
        if max(request.head, request.capacity) >= POSITIONS:
            raise InvalidContribution(
                f"head is {request.head} and capacity {request.capacity}; both lie below 2^62"
            )
        key = table_key(request.run_term.run, request.table)
        check_version(request.version, peer="controller", own="replay service")
        table = await shielded(self._open(key, request))
        return pb.OpenTableResponse(tail=table.tail, head=table.head, version=__version__)

    async def _open(self, key: str, request: pb.OpenTableRequest) -> Table:
        """Open a table; minibatches held for the controller before are given up."""
        table = await self._pacing.locked(partial(self._opened, key, request))
        self._blocks.opened(key)
        self._reads.minibatches.clear(key)  # a resumed run may write other rows to these positions
        self._pacing.restart(key)
        await self._pacing.notify()
        return table

    def _opened(self, key: str, request: pb.OpenTableRequest) -> Table:
        """Admit the controller; the table ends where it goes on."""
        run_term = run_term_of(request.run_term)
        table = self._table(key, row_size=request.row_size, capacity=request.capacity)
        self._fence.raise_to(key, run_term)
        table.truncate(request.head)
        self._event_log.append(Truncated(table=key, head=table.head))
        return table

    def _table(self, key: str, *, row_size: int, capacity: int) -> Table:
        """Make or find the table."""
        known = key in self._store.tables
        table = self._store.open(key, row_size=row_size, capacity=capacity)
        if not known and table.head:  # its folder was put there after the start
            self._event_log.append(Reopened(table=key, head=table.head))
        return table

    async def CloseRun(self, request: pb.CloseRunRequest, context: Context) -> pb.CloseRunResponse:
        """Take note that a run has ended."""
        run_term = run_term_of(request.run_term)
        self._fence.close(table_key(run_term.run, request.table), run_term)
        if not self._fence.open_runs:
            self.ended.set()
        return pb.CloseRunResponse()

    async def GrantBlocks(
        self, request: pb.GrantBlocksRequest, context: Context
    ) -> pb.GrantBlocksResponse:
        """Let collectors stage blocks."""
        return self._blocks.grant(request)

    async def StageBlock(
        self, requests: AsyncIterator[pb.StageBlockRequest], context: Context
    ) -> pb.StageBlockResponse:
        """Receive and stage a block."""
        return await self._blocks.stage(aiter(requests))

    async def AcceptBlocks(
        self, requests: AsyncIterator[pb.AcceptBlocksRequest], context: Context
    ) -> pb.AcceptBlocksResponse:
        """Store staged blocks, or rows that come with the call, and acknowledge them."""
        messages = aiter(requests)
        request = await first_message(messages)
        if request.HasField("chunk"):
            return await self._appends.serve(request, messages)
        return await self._blocks.accept(request)

    async def LocateTable(
        self, request: pb.LocateTableRequest, context: Context
    ) -> pb.LocateTableResponse:
        """Return path and id of a table's file."""
        key = table_key(request.run, request.table)
        await self._pacing.until(lambda: key in self._store.tables)
        location, opened = self._store.location(key), self._fence.opened(key)
        return pb.LocateTableResponse(
            path=location.path,
            instance=location.instance,
            opened=None if opened is None else run_term_message(opened),
        )

    async def GetSamples(
        self, requests: AsyncIterator[pb.GetSamplesRequest], context: Context
    ) -> None:
        """Write the items asked for."""
        await self._reads.serve(requests, partial(_send, context))


async def _send(context: Context, message: Message | bytes) -> None:
    """Write a message; end the stream if its reader stalls, since the chunks occupy memory."""
    try:
        async with asyncio.timeout(SEND_S):
            await context.write(message)
    except TimeoutError:
        raise DeadlinePassed(f"no chunk was taken for {SEND_S:.0f} s; ask again") from None
