"""Appends while they are received, wait and are stored, and the staged blocks of collectors.

Both are bounded in time and in memory.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TypeVar

import numpy as np

from fullrank.common.errors import (
    DeadlinePassed,
    InvalidContribution,
    NotFound,
    Overloaded,
    StaleTerm,
)
from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, RunTerm
from fullrank.net.codec import Assembler
from fullrank.net.messages import episode_layout_of, run_term_of
from fullrank.replay.fence import Fence
from fullrank.replay.limits import APPEND_BYTES, rows_per_append
from fullrank.replay.staging import Grant, Staging, judged
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import Table
from fullrank.runs.events import EventLog, Stored
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.pacing import Pacing, shielded

Chunked = TypeVar("Chunked", pb.AcceptBlocksRequest, pb.StageBlockRequest)
"""A message of a stream that carries rows in chunks."""

APPENDS = 16
"""Most appends in progress at a time. A controller makes one after the other."""

RECEIVE_S = 30.0
"""Longest wait for the next chunk of an append."""

STREAMS = 64
"""Most blocks that are received at a time."""

RETRY_AFTER_S = 1.0
"""Seconds after which a refused append may be tried again."""


class AppendRoom:
    """Memory of the appends in progress: ``APPENDS`` of ``APPEND_BYTES``, or one larger row.

    Attributes:
        count: Appends in progress.
    """

    def __init__(self) -> None:
        self.count = 0
        self._bytes = 0

    @contextmanager
    def lent(self, size_bytes: int) -> Iterator[None]:
        """Room for one append.

        Raises:
            Overloaded: The appends in progress leave none.
        """
        most_bytes = APPENDS * APPEND_BYTES
        if self.count >= APPENDS or (self.count and self._bytes + size_bytes > most_bytes):
            raise Overloaded(
                f"{self.count} appends of {self._bytes} bytes wait already; make one after the "
                "other",
                retry_after_s=RETRY_AFTER_S,
            )
        self.count += 1
        self._bytes += size_bytes
        try:
            yield
        finally:
            self.count -= 1
            self._bytes -= size_bytes


class Appends:
    """Appends to the tables that a controller writes by position.

    Args:
        store: The tables.
        fence: Admits the controller that opened a table last.
        pacing: Admits appends between gathers, once samples are not too far behind.
        event_log: Records stored rows before they are acknowledged.

    Attributes:
        room: Memory of the appends that are received, wait or are being stored.
    """

    def __init__(self, store: Store, fence: Fence, pacing: Pacing, event_log: EventLog) -> None:
        self._store, self._fence, self._pacing = store, fence, pacing
        self._event_log = event_log
        self.room = AppendRoom()

    async def serve(
        self, request: pb.AcceptBlocksRequest, messages: AsyncIterator[pb.AcceptBlocksRequest]
    ) -> pb.AcceptBlocksResponse:
        """Receive and store the rows that a request and the messages after it bring.

        Raises:
            FullrankError: They are not stored.
        """
        try:
            rows, room = await self._receive(request, messages)
        except (InvalidContribution, NotFound, Overloaded, StaleTerm):
            await drain(messages)
            raise
        key = _key_of(request)
        head = await shielded(self._store_received(key, request, rows, room))
        return pb.AcceptBlocksResponse(head=head, repeated=self._store.get(key).repeated)

    async def _receive(
        self, request: pb.AcceptBlocksRequest, messages: AsyncIterator[pb.AcceptBlocksRequest]
    ) -> tuple[FloatArray, ExitStack]:
        """The rows of an append, and the room that they occupy until the stack is closed."""
        key, total = _key_of(request), request.chunk.total
        row_size = self._store.get(key).row_size
        most = rows_per_append(4 * row_size)
        if rows_announced(total, row_size=row_size) > most:
            raise InvalidContribution(
                f"chunk.total is {total}; an append has at most {4 * row_size * most} bytes"
            )
        with ExitStack() as room:
            room.enter_context(self.room.lent(total))
            self._fence.check(key, run_term_of(request.run_term))
            rows = await receive_rows(request, messages, row_size=row_size)
            return rows, room.pop_all()

    async def _store_received(
        self, key: str, request: pb.AcceptBlocksRequest, rows: FloatArray, room: ExitStack
    ) -> int:
        with room:
            return await self.store(
                key,
                rows,
                request.first_position,
                run_term=run_term_of(request.run_term),
                drawn_head=request.drawn_head,
            )

    async def store(
        self, key: str, rows: FloatArray, first: int, *, run_term: RunTerm, drawn_head: int
    ) -> int:
        """Store rows as soon as samples are not too far behind; returns the head.

        Args:
            key: The table.
            rows: As many as one append may have.
            first: Position of the first row.
            run_term: The controller's term.
            drawn_head: Head of its newest sample; 0: none.

        Raises:
            FullrankError: They are not stored.
        """
        table = self._store.get(key)
        limiter = self._pacing.limiter(key, window=table.capacity)
        if drawn_head:
            limiter.sampled(min(drawn_head, table.head))
        head = first + len(rows)
        if not await self._pacing.until(lambda: limiter.admits(head)):
            raise Overloaded(
                f"no sample has been able to draw the rows that an append up to position {head} "
                "would evict; see what holds the learners up",
                retry_after_s=RETRY_AFTER_S,
            )
        head = await self._pacing.locked(partial(self._append, key, table, rows, first, run_term))
        await self._pacing.notify()
        return head

    def _append(
        self, key: str, table: Table, rows: FloatArray, first: int, run_term: RunTerm
    ) -> int:
        self._fence.check(key, run_term)
        head = table.append(first, rows)
        reach("rows.stored")
        self._event_log.append(Stored(table=key, first=first, head=head))
        return head


class StagedBlocks:
    """Staged blocks by table.

    Args:
        store: The tables.
        fence: Admits the controller that opened a table last, and its collectors.
        appends: Stores accepted blocks.
    """

    def __init__(self, store: Store, fence: Fence, appends: Appends) -> None:
        self._store, self._fence, self._appends = store, fence, appends
        self._staging: dict[str, Staging] = {}
        self._streams = 0

    def opened(self, key: str) -> None:
        """Drop what was staged, and all grants: another controller has opened the table."""
        self._staging.pop(key, None)

    def grant(self, request: pb.GrantBlocksRequest) -> pb.GrantBlocksResponse:
        """Let blocks be staged.

        Raises:
            FullrankError: The table is not the caller's.
        """
        key = self._admitted(request)
        row_size = self._store.get(key).row_size
        layout = None
        if request.HasField("episodes"):
            layout = episode_layout_of(request.episodes, row_size=row_size)
        grant = Grant(most_rows=request.most_rows, episodes=layout)
        blocks = range(request.first, request.first + request.blocks)
        self._staging.setdefault(key, Staging()).grant(request.iteration, blocks, grant)
        return pb.GrantBlocksResponse()

    def _admitted(
        self, request: pb.GrantBlocksRequest | pb.StageBlockRequest | pb.AcceptBlocksRequest
    ) -> str:
        """The key of the table that a request names.

        Raises:
            FullrankError: The table is not the caller's.
        """
        key = table_key(request.run_term.run, request.table)
        self._store.get(key)
        self._fence.check(key, run_term_of(request.run_term))
        return key

    async def stage(self, requests: AsyncIterator[pb.StageBlockRequest]) -> pb.StageBlockResponse:
        """Receive and stage one block.

        Raises:
            FullrankError: It is not staged.
        """
        request = await first_message(requests)
        try:
            if self._streams >= STREAMS:
                raise Overloaded(f"{STREAMS} blocks come already", retry_after_s=RETRY_AFTER_S)
            self._streams += 1
            try:
                key, rows = await self._received(request, requests)
            finally:
                self._streams -= 1
        except (InvalidContribution, NotFound, Overloaded, StaleTerm):
            await drain(requests)
            raise
        staging, iteration, lengths = self._of(key), request.iteration, list(request.lengths)
        grant = staging.granted(iteration, request.block, len(rows))  # or not any more
        digest = await asyncio.to_thread(judged, rows, lengths, grant.episodes)
        staging.keep(iteration, request.block, digest, rows)
        return pb.StageBlockResponse()

    def _of(self, key: str) -> Staging:
        """The staging of a table; an empty one where nothing is granted."""
        return self._staging.get(key) or Staging()

    async def _received(
        self, request: pb.StageBlockRequest, messages: AsyncIterator[pb.StageBlockRequest]
    ) -> tuple[str, FloatArray]:
        key = self._admitted(request)
        row_size = self._store.get(key).row_size
        announced = rows_announced(request.chunk.total, row_size=row_size)
        self._of(key).granted(request.iteration, request.block, announced)
        return key, await receive_rows(request, messages, row_size=row_size)

    async def accept(self, request: pb.AcceptBlocksRequest) -> pb.AcceptBlocksResponse:
        """Store staged blocks, or say which are missing.

        Raises:
            FullrankError: They are not stored, or not all of them.
        """
        key = self._admitted(request)
        staging, iteration, first = self._of(key), request.iteration, request.first
        staged = staging.staged(iteration, first, request.digests)
        blocks = [rows for rows in staged if rows is not None]
        if len(blocks) < len(staged):
            missing = [block for block, rows in enumerate(staged, first) if rows is None]
            granted = staging.is_granted(iteration, first)
            head = self._store.get(key).head
            return pb.AcceptBlocksResponse(missing=missing, granted=granted, head=head)
        head = await shielded(self._stored(key, request, blocks))
        staging.accepted(iteration, first)
        return pb.AcceptBlocksResponse(head=head, granted=True)

    async def _stored(
        self, key: str, request: pb.AcceptBlocksRequest, blocks: list[FloatArray]
    ) -> int:
        """Store blocks in order, in appends of the usual size; returns the position after them."""
        position, run_term = request.first_position, run_term_of(request.run_term)
        for rows in blocks:
            step = rows_per_append(rows.itemsize * rows.shape[1])
            for start in range(0, len(rows), step):
                piece = rows[start : start + step]
                await self._appends.store(
                    key, piece, position, run_term=run_term, drawn_head=request.drawn_head
                )
                position += len(piece)
        return position


def _key_of(request: pb.AcceptBlocksRequest) -> str:
    """The key of the table that the first message of an append names."""
    return table_key(request.run_term.run, request.table)


async def first_message(requests: AsyncIterator[Chunked]) -> Chunked:
    """The message that names an append, or a block.

    Raises:
        InvalidContribution: There is none.
        DeadlinePassed: It does not come.
    """
    request = await _next(requests)
    if request is None:
        raise InvalidContribution("a stream has at least one message, which names what it carries")
    return request


def rows_announced(total: int, *, row_size: int) -> int:
    """The rows of so many bytes; ``InvalidContribution`` unless they are whole rows."""
    row_bytes = 4 * row_size
    if not total or total % row_bytes:
        raise InvalidContribution(
            f"chunk.total is {total}, not a whole number of rows of {row_size} float32"
        )
    return total // row_bytes


async def receive_rows(
    first: Chunked, requests: AsyncIterator[Chunked], *, row_size: int
) -> FloatArray:
    """The rows of one append, or block, once the caller has sent all of them and closed its side.

    Args:
        first: The message that names them, whose length was checked.
        requests: The messages after it.
        row_size: Entries of a row.

    Raises:
        InvalidContribution: A chunk is damaged or out of place, or the stream ends early or late;
            the message names the field.
        DeadlinePassed: The next chunk does not come.
    """
    total = first.chunk.total
    rows: FloatArray = np.empty((total // (4 * row_size), row_size), dtype="<f4")
    assembler = Assembler(rows, array_id=0)
    assembler.add(first.chunk)
    while (request := await _next(requests)) is not None:
        named = next((field.name for field, _ in request.ListFields() if field.name != "chunk"), "")
        if named:
            raise InvalidContribution(f"{named} is given again; only the first message names it")
        if assembler.complete:
            raise InvalidContribution(f"chunk.offset is {request.chunk.offset}, beyond the end")
        assembler.add(request.chunk)
    if not assembler.complete:
        raise InvalidContribution(f"chunk.total is {total}, but the stream ended before that")
    return rows


async def drain(requests: AsyncIterator[Chunked]) -> None:
    """Discard the rest of what is refused, for at most ``RECEIVE_S``.

    A caller in grpc.aio that is still writing when its call ends is told INTERNAL, not the reason.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(RECEIVE_S):
            while await anext(requests, None) is not None:
                pass


async def _next(requests: AsyncIterator[Chunked]) -> Chunked | None:
    """The next message, None at the end of the stream."""
    try:
        async with asyncio.timeout(RECEIVE_S):
            return await anext(requests, None)
    except TimeoutError:
        raise DeadlinePassed(f"no chunk came for {RECEIVE_S:.0f} s; send again") from None
