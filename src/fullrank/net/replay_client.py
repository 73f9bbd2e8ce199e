"""Asynchronous client of replay; every call has a deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fullrank import __version__
from fullrank.common.errors import InvalidContribution, Malformed, NotFound, StaleTerm
from fullrank.common.text import plain
from fullrank.common.types import FloatArray, IntArray, RunTerm
from fullrank.host.certificates import Role
from fullrank.net.channel import PLAINTEXT, Security, open_channel
from fullrank.net.codec import CHUNK_BYTES, chunks
from fullrank.net.errors import checked, translated
from fullrank.net.messages import check_version, message_of, run_term_message, sample_of
from fullrank.net.replay_calls import Repeated, SampleStream
from fullrank.replay.items import Gathered, Items
from fullrank.replay.limits import rows_per_minibatch
from fullrank.replay.mapped_table import MappedTable
from fullrank.replay.samplers import Sample
from fullrank.replay.staging import Grant
from fullrank.replay.table import TABLE
from fullrank.v1 import common_pb2
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub

T = TypeVar("T")
_Chunked = TypeVar("_Chunked", pb.AcceptBlocksRequest, pb.StageBlockRequest)
"""A message of a stream that carries rows in chunks."""

CONFIRM_S = 5.0
"""Longest wait for the term that has opened a table."""
CLOSE_S = 10.0
"""Deadline of telling the service that a run has ended."""

FEW_BYTES = 2**18
"""Bytes of drawn rows that are gathered in less time than a change of threads takes."""


class Unstaged(NamedTuple):
    """Blocks that replay has not staged."""

    blocks: list[int]
    """Their numbers."""
    granted: bool
    """False if it knows no grant of them, as after a restart."""
    head: int
    """One past the last row of the table."""


class ReplayClient:
    """Stores blocks in and samples from one table of a replay service.

    Positions make every call idempotent, so that calls survive a restart of the service.

    Args:
        address: ``host:port``.
        deadline_s: For calls, repetitions included.
        security: Identity of the caller.
        away: As of ``Repeated``; ``get_sample`` and ``map_table`` end at the deadline all the same.
    """

    def __init__(
        self,
        address: str,
        *,
        deadline_s: float,
        security: Security = PLAINTEXT,
        away: Callable[[str], None] | None = None,
    ) -> None:
        self._channel = open_channel(address, trust=security.towards(Role.REPLAY))
        self._stub = ReplayServiceStub(self._channel)
        self._peer = f"replay {plain(address)}"
        self._deadline_s = deadline_s
        self._calls = Repeated(self._peer, deadline_s=deadline_s, away=away)
        self._sampling = asyncio.Lock()
        dial = partial(self._stub.GetSamples, wait_for_ready=True)
        self._samples = SampleStream(dial, peer=self._peer)
        self._run_term = common_pb2.RunTerm()
        self._opening = pb.OpenTableRequest()
        self._mapped: MappedTable | None = None
        self._drawn_head = 0
        """Head of the newest sample drawn; 0: none."""

    async def map_table(self) -> None:
        """Map the file of the run's table; samples of acknowledged rows are gathered from it then.

        Raises:
            NotFound: This process cannot read the file, or the table is not in one.
            ServiceLost: The service does not answer.
        """
        self._mapped = None
        located = await self._locate(timeout_s=self._deadline_s)
        self._mapped = MappedTable(Path(located.path), located.instance)

    async def _locate(self, *, timeout_s: float) -> pb.LocateTableResponse:
        request = pb.LocateTableRequest(table=TABLE, run=self._run_term.run)
        locate = partial(self._stub.LocateTable, timeout=timeout_s, wait_for_ready=True)
        with translated(self._peer):
            return checked(await locate(request))

    async def confirm(self) -> None:
        """Return if no later controller of the run has opened the table since.

        Raises:
            StaleTerm: One has.
            FullrankError: The service does not answer soon, or has no such table.
        """
        opened = (await self._locate(timeout_s=CONFIRM_S)).opened
        own = self._run_term
        if opened.run == own.run and opened.term > own.term:
            raise StaleTerm(
                f"{self._peer}: the table was opened in term {opened.term} of run {own.run}, this "
                f"controller is of term {own.term}: a later controller runs; nothing more is "
                "committed here"
            )

    async def open_table(
        self,
        *,
        row_size: int,
        capacity: int,
        head: int,
        run_term: RunTerm,
    ) -> tuple[int, int]:
        """Open the table, which then ends at ``head`` or before; returns (tail, head).

        Waits for the service to start. Later appends are made under ``run_term``.

        Raises:
            StaleTerm: Another controller has opened the table in this term or a later one.
            ConfigError: The service has no room for it, or holds it with another size.
            VersionMismatch: The service runs another version.
        """
        self.under(run_term)
        self._opening = pb.OpenTableRequest(
            table=TABLE,
            row_size=row_size,
            capacity=capacity,
            head=head,
            run_term=self._run_term,
            version=__version__,
        )
        return await self.truncate(head)

    async def truncate(self, head: int) -> tuple[int, int]:
        """Discard the rows from ``head`` on, and all grants; returns (tail, head).

        Raises like ``open_table``, which opened the table.
        """
        self._opening.head = head
        response = await self._insist(self._stub.OpenTable, lambda: self._opening)
        check_version(response.version, peer="replay service", own="controller")
        if not response.tail <= response.head <= head:
            raise self._no_range(response.tail, response.head, f"that ends at {head} or before")
        return response.tail, response.head

    async def _insist(self, call: Callable[..., Awaitable[T]], make: Callable[[], Any]) -> T:
        """Insist on an answer; the request is made anew for each attempt.

        Args:
            call: The call.
            make: Makes the request.
        """
        timeout_s = self._deadline_s

        async def asked() -> T:
            return checked(await call(make(), timeout=timeout_s, wait_for_ready=True))

        return await self._calls.insist(asked)

    def _no_range(self, tail: int, head: int, expected: str) -> Malformed:
        return Malformed(f"{self._peer}: the rows [{tail}, {head}), not a range {expected}")

    def under(self, run_term: RunTerm) -> None:
        """Make later calls for a run, under a term that has opened its table."""
        self._run_term = run_term_message(run_term)

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows of any size; returns the acknowledged head.

        The rows travel in appends of about a chunk, or of one row that is larger; each is stored
        whole or not at all.

        Args:
            first_position: Position of the first row.
            rows: Shape (n, row_size).

        Raises:
            StaleTerm: Another controller has opened the table since.
        """
        head = first_position
        step = max(1, CHUNK_BYTES // (4 * rows.shape[1]))
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            await self._insist(self._stub.AcceptBlocks, partial(self._own_block, head, block))
            head += len(block)
        return head

    def _own_block(self, head: int, rows: FloatArray) -> Iterator[pb.AcceptBlocksRequest]:
        """The messages of one attempt to append rows, by which replay knows all samples so far."""
        return append_requests(
            TABLE, head, rows, run_term=self._run_term, drawn_head=self._drawn_head
        )

    async def grant(self, iteration: int, blocks: range, grant: Grant) -> None:
        """Let collectors stage blocks, the keyed ones of an iteration or a free one of a term.

        Raises:
            StaleTerm: Another controller has opened the table since.
        """
        request = pb.GrantBlocksRequest(
            table=TABLE,
            run_term=self._run_term,
            iteration=iteration,
            first=blocks.start,
            blocks=len(blocks),
            most_rows=grant.most_rows,
            episodes=message_of(pb.EpisodeSizes, grant.episodes),
        )
        await self._insist(self._stub.GrantBlocks, lambda: request)

    async def stage(self, iteration: int, block: int, rows: FloatArray, lengths: IntArray) -> None:
        """Stage a block, as a collector, within the deadline.

        Raises:
            NotFound: It is not granted.
            InvalidContribution: It could not have been played.
            StaleTerm: Another controller has opened the table since.
            ServiceLost: The service does not answer, or has no room.
        """
        request = pb.StageBlockRequest(
            table=TABLE,
            run_term=self._run_term,
            iteration=iteration,
            block=block,
            lengths=lengths,
        )
        messages, timeout_s = in_chunks(request, rows), self._deadline_s
        with translated(self._peer):
            await self._stub.StageBlock(messages, timeout=timeout_s, wait_for_ready=True)

    async def accept(
        self,
        iteration: int,
        first_position: int,
        digests: Sequence[bytes],
        *,
        rows: int,
        first: int = 0,
    ) -> Unstaged | None:
        """Store staged blocks that were granted together.

        Args:
            iteration: Their iteration, or term.
            first_position: Position of the first row.
            digests: Digest of each block.
            rows: Rows of all of them.
            first: Number of the first block.

        Returns:
            The blocks that are not staged, of which any keeps all from being stored; or None.

        Raises:
            StaleTerm: Another controller has opened the table since.
        """
        request = pb.AcceptBlocksRequest(
            table=TABLE,
            run_term=self._run_term,
            iteration=iteration,
            first_position=first_position,
            digests=digests,
            drawn_head=self._drawn_head,
            first=first,
        )
        response = await self._insist(self._stub.AcceptBlocks, lambda: iter([request]))
        if missing := sorted(response.missing):
            if not first <= missing[0] <= missing[-1] < first + len(digests):
                raise Malformed(f"{self._peer}: it misses blocks {missing[0]} to {missing[-1]}")
            return Unstaged(missing, response.granted, response.head)
        if response.head != first_position + rows:
            raise self._no_range(first_position, response.head, f"of {rows} rows")
        return None

    async def await_sample(
        self, sample: common_pb2.Sample, *, row_size: int, items: Items = None
    ) -> Gathered:
        """Fetch like ``get_sample``, however long the service is away."""
        return await self._calls.outlast(
            lambda: self.get_sample(sample, row_size=row_size, items=items)
        )

    async def get_sample(
        self, sample: common_pb2.Sample, *, row_size: int, items: Items = None
    ) -> Gathered:
        """Fetch some or all items of a minibatch, within the deadline.

        One stream serves all samples of a learner, one after the other. An empty minibatch needs no
        request.

        Args:
            sample: The minibatch.
            row_size: Entries of a row.
            items: Items to fetch; by default all.
        """
        if not sample.size or items == ():
            return Gathered(np.empty((0, row_size), np.float32), 0, items)
        if sample.size > (most := rows_per_minibatch(4 * row_size)):
            raise InvalidContribution(f"sample.size is {sample.size}, and {most} rows can come")
        async with self._sampling:
            if self._mapped is not None:
                gathered = await _gather(self._mapped, sample_of(sample), items, row_size)
                if gathered is not None:
                    return gathered
            return await self._calls.within_deadline(
                lambda: self._samples.using(self._fetch(sample, row_size, items))
            )

    async def _fetch(self, sample: common_pb2.Sample, row_size: int, items: Items) -> Gathered:
        """Ask the service for a minibatch that cannot be gathered from the mapped file."""
        request = pb.GetSamplesRequest(sample=sample, items=items, run=self._run_term.run)
        batch = await self._samples.fetch(request, row_size)
        if self._mapped is not None:  # the service may have opened the file anew
            with suppress(NotFound):
                await self.map_table()
        return batch

    def drew(self, sample: Sample) -> None:
        """Tell the service of a sample with the next append, which it paces by samples."""
        if sample.size:
            self._drawn_head = sample.head

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


async def close_run(address: str, run_term: RunTerm, *, security: Security = PLAINTEXT) -> None:
    """Tell a replay service that a run has ended.

    Raises:
        ServiceLost: It does not answer.
        StaleTerm: Its table is another run's, or of a later term.
    """
    async with open_channel(address, trust=security.towards(Role.REPLAY)) as channel:
        request = pb.CloseRunRequest(table=TABLE, run_term=run_term_message(run_term))
        with translated(f"replay {plain(address)}"):
            await ReplayServiceStub(channel).CloseRun(request, timeout=CLOSE_S)


async def _gather(
    mapped: MappedTable, sample: Sample, items: Items, row_size: int
) -> Gathered | None:
    """Gather few rows at once, many or those that are searched for on a thread."""
    if not sample.searched and 4 * row_size * sample.size <= FEW_BYTES:
        return mapped.gather(sample, items)
    return await asyncio.to_thread(mapped.gather, sample, items)


def append_requests(
    table: str,
    first_position: int,
    rows: FloatArray,
    *,
    run_term: common_pb2.RunTerm,
    drawn_head: int = 0,
) -> Iterator[pb.AcceptBlocksRequest]:
    """The messages that store a block of the caller."""
    request = pb.AcceptBlocksRequest(
        table=table, first_position=first_position, run_term=run_term, drawn_head=drawn_head
    )
    return in_chunks(request, rows)


def in_chunks(request: _Chunked, rows: FloatArray) -> Iterator[_Chunked]:
    """The messages of a request with rows; the first of them names what all bring."""
    for chunk in chunks(rows, array_id=0):
        request.chunk.CopyFrom(chunk)
        yield request
        request = type(request)()
