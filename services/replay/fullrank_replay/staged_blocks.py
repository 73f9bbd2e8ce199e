"""StagedBlocks of collectors: granted, staged and accepted."""

import asyncio
from collections.abc import AsyncIterator

from fullrank.common.errors import InvalidContribution, NotFound, Overloaded, StaleTerm
from fullrank.common.types import FloatArray
from fullrank.net.messages import episode_layout_of, run_term_of
from fullrank.replay.fence import Fence
from fullrank.replay.limits import rows_per_append
from fullrank.replay.staging import Grant, Staging, judged
from fullrank.replay.store import Store, table_key
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.appends import RETRY_AFTER_S, Appends, drain, first_message, receive_rows
from fullrank_replay.pacing import shielded

STREAMS = 64
"""Most blocks that are received at a time."""


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
        key, total = self._admitted(request), request.chunk.total
        row_bytes = 4 * self._store.get(key).row_size
        if not total or total % row_bytes:
            raise InvalidContribution(
                f"chunk.total is {total}, not a whole number of rows of {row_bytes} bytes"
            )
        self._of(key).granted(request.iteration, request.block, total // row_bytes)
        return key, await receive_rows(request, messages, row_size=row_bytes // 4)

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
