"""Requests to table calls; a minibatch is gathered and encoded once for all learners."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec, TypeAlias, TypeVar

import google_crc32c
import grpc

from fullrank.errors import Corrupted, InvalidContribution
from fullrank.failpoints import reach
from fullrank.history import Notebook, Reopened, Stored, Truncated
from fullrank.replay import Sample, Table
from fullrank.rpc.clients import sample_of, tenure_of
from fullrank.rpc.codec import SAMPLE_CHUNK, encode_chunks, floats
from fullrank.rpc.errors import statuses
from fullrank.types import FloatArray
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.fence import Fence
from fullrank_replay.store import Store

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
P = ParamSpec("P")
T = TypeVar("T")

SAMPLES_KEPT = 2
"""Encoded minibatches kept: the current iteration's, and the last one's for late learners."""


SAMPLE_ENTRIES = 2**28
"""Largest minibatch, in float32: 1 GiB."""


class ReplayServicer:
    """ReplayService over a store, written to by whom the fence admits; noted, then acknowledged."""

    def __init__(self, store: Store, fence: Fence, notebook: Notebook) -> None:
        self._store, self._fence, self._notebook = store, fence, notebook
        for name, table in store.tables.items():
            notebook.note(Reopened(table=name, head=table.head))
        self._samples: OrderedDict[Sample, asyncio.Task[list[bytes]]] = OrderedDict()
        self._lock = asyncio.Lock()  # an append may evict rows that are being gathered

    async def OpenTable(
        self, request: pb.OpenTableRequest, context: Context
    ) -> pb.OpenTableResponse:
        """Make or find a table."""
        async with statuses(context):
            if not (request.table and request.row_size and request.capacity and request.tenure.run):
                raise InvalidContribution("table, row_size, capacity and tenure must be given")
            table = self._store.open(
                request.table, row_size=request.row_size, capacity=request.capacity
            )
            await self._alone(self._truncate, request, table)
            self._samples.clear()  # a resumed run may write other rows to the same positions
            return pb.OpenTableResponse(tail=table.tail, head=table.head)

    def _truncate(self, request: pb.OpenTableRequest, table: Table) -> None:
        self._fence.raise_to(request.table, tenure_of(request.tenure))
        table.truncate(request.head)
        self._notebook.note(Truncated(table=request.table, head=table.head))

    async def Append(self, request: pb.AppendRequest, context: Context) -> pb.AppendResponse:
        """Store and acknowledge rows."""
        async with statuses(context):
            table = self._store.get(request.table)
            if google_crc32c.value(request.rows) != request.crc32c:
                raise Corrupted("crc32c does not match rows; send them again")
            rows = floats(request.rows, row_size=table.row_size)
            head = await self._alone(self._append, request, table, rows)
            return pb.AppendResponse(head=head, repeated=table.repeated)

    def _append(self, request: pb.AppendRequest, table: Table, rows: FloatArray) -> int:
        self._fence.check(request.table, tenure_of(request.tenure))
        head = table.append(request.first_position, rows)
        reach("rows.stored")
        self._notebook.note(Stored(table=request.table, first=request.first_position, head=head))
        return head

    async def _alone(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call in a thread, nothing else beside it, to its end even if the caller is gone."""

        async def locked() -> T:
            async with self._lock:
                return await asyncio.to_thread(call, *args, **kwargs)

        return await asyncio.shield(asyncio.create_task(locked()))

    async def GetSamples(
        self, requests: AsyncIterator[pb.GetSamplesRequest], context: Context
    ) -> None:
        """Write the encoded chunks of each minibatch asked for."""
        async with statuses(context):
            async for request in requests:
                for message in await self._encoded(sample_of(request.sample)):
                    await context.write(message)

    async def _encoded(self, sample: Sample) -> list[bytes]:
        """The minibatch as messages; learners that ask at once share one gathering."""
        table = self._store.get(sample.table)
        table.check(sample)
        if sample.size * table.row_size > SAMPLE_ENTRIES:
            raise InvalidContribution(
                f"sample.size {sample.size} of rows of {table.row_size} float32 exceeds "
                f"{SAMPLE_ENTRIES} entries"
            )
        if sample not in self._samples:
            self._samples[sample] = asyncio.create_task(self._alone(self._gather, sample))
            while len(self._samples) > SAMPLES_KEPT:
                self._samples.popitem(last=False)
        return await asyncio.shield(self._samples[sample])

    def _gather(self, sample: Sample) -> list[bytes]:
        rows = self._store.get(sample.table).minibatch(sample)
        return list(map(bytes, encode_chunks(rows, array_id=0, field=SAMPLE_CHUNK)))
