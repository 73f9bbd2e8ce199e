"""ReplayService: requests become calls of tables, bounded in time and in memory."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from google.protobuf.message import Message

from fullrank import __version__
from fullrank.common.errors import DeadlinePassed, InvalidContribution
from fullrank.net.errors import Context, statuses
from fullrank.net.messages import check_version, run_term_message, run_term_of
from fullrank.replay.fence import Fence
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import Table
from fullrank.runs.events import EventLog, Reopened, Truncated
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.appends import Appends, first_message
from fullrank_replay.pacing import Pacing, shielded
from fullrank_replay.reads import Reads
from fullrank_replay.staged_blocks import StagedBlocks

SEND_S = 30.0
"""Longest pause of a learner between two chunks of its minibatch."""


class ReplayServicer:
    """ReplayService over a store; the fence admits one controller of its run for each table.

    Args:
        store: The tables.
        fence: Admits the controller that opened a table last.
        event_log: Records stored rows before they are acknowledged.
        pacing: Orders the calls; None: a plain one.

    Attributes:
        ended: Set once a run has ended while no other is open.
    """

    def __init__(
        self, store: Store, fence: Fence, event_log: EventLog, *, pacing: Pacing | None = None
    ) -> None:
        self._store, self._fence, self._event_log = store, fence, event_log
        self.ended = asyncio.Event()
        for name, table in store.tables.items():
            event_log.append(Reopened(table=name, head=table.head))
        self._pacing = pacing or Pacing()
        self._appends = Appends(store, fence, self._pacing, event_log)
        self._blocks = StagedBlocks(store, fence, self._appends)
        self._reads = Reads(store, self._pacing)

    async def OpenTable(
        self, request: pb.OpenTableRequest, context: Context
    ) -> pb.OpenTableResponse:
        """Make or find a table."""
        async with statuses(context):
            if not (request.row_size and request.capacity):
                raise InvalidContribution("row_size and capacity must be given")
            key = table_key(request.run_term.run, request.table)
            check_version(request.version, peer="controller", own="replay service")
            table = await shielded(self._open(key, request))
            return pb.OpenTableResponse(tail=table.tail, head=table.head, version=__version__)

    async def _open(self, key: str, request: pb.OpenTableRequest) -> Table:
        """Open a table; minibatches held for the controller before are given up."""
        table = await self._pacing.locked(partial(self._opened, key, request))
        self._blocks.opened(key)
        self._reads.clear(key)  # a resumed run may write other rows to these positions
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
        async with statuses(context):
            run_term = run_term_of(request.run_term)
            self._fence.close(table_key(run_term.run, request.table), run_term)
            if not self._fence.open_runs:
                self.ended.set()
            return pb.CloseRunResponse()

    @property
    def waiting(self) -> int:
        """Appends that are received, wait or are being stored."""
        return self._appends.waiting

    async def GrantBlocks(
        self, request: pb.GrantBlocksRequest, context: Context
    ) -> pb.GrantBlocksResponse:
        """Let collectors stage blocks."""
        async with statuses(context):
            return self._blocks.grant(request)

    async def StageBlock(
        self, requests: AsyncIterator[pb.StageBlockRequest], context: Context
    ) -> pb.StageBlockResponse:
        """Receive and stage a block."""
        async with statuses(context):
            return await self._blocks.stage(aiter(requests))

    async def AcceptBlocks(
        self, requests: AsyncIterator[pb.AcceptBlocksRequest], context: Context
    ) -> pb.AcceptBlocksResponse:
        """Store staged blocks, or rows that come with the call, and acknowledge them."""
        async with statuses(context):
            messages = aiter(requests)
            request = await first_message(messages)
            if request.HasField("chunk"):
                return await self._appends.serve(request, messages)
            return await self._blocks.accept(request)

    async def LocateTable(
        self, request: pb.LocateTableRequest, context: Context
    ) -> pb.LocateTableResponse:
        """Return path and id of a table's file."""
        async with statuses(context):
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
        async with statuses(context):
            await self._reads.serve(requests, partial(_send, context))


async def _send(context: Context, message: Message | bytes) -> None:
    """Write a message; end the stream if its reader stalls, since the chunks occupy memory."""
    try:
        async with asyncio.timeout(SEND_S):
            await context.write(message)
    except TimeoutError:
        raise DeadlinePassed(f"no chunk was taken for {SEND_S:.0f} s; ask again") from None
