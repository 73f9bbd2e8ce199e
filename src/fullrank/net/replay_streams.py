"""Streams to replay: of minibatches that are requested, and of episodes that a writer sends.

The episodes of a writer reach replay in order, each once, through broken lines.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from secrets import randbelow
from typing import NamedTuple, TypeAlias, TypeVar

import grpc
import numpy as np

from fullrank import __version__
from fullrank.common.errors import FullrankError, InvalidContribution, ServiceLost, StaleTerm
from fullrank.common.text import plain
from fullrank.common.types import FloatArray, RunTerm
from fullrank.host.certificates import Role
from fullrank.net.channel import PLAINTEXT, Security, open_channel
from fullrank.net.codec import Assembler, chunks
from fullrank.net.errors import CALL_ENDED, checked, translated
from fullrank.net.messages import run_term_message, sample_of
from fullrank.replay.authorship import MOST
from fullrank.replay.items import Gathered, spread
from fullrank.replay.limits import rows_per_minibatch
from fullrank.replay.table import TABLE
from fullrank.replay.writer_sequences import WINDOW
from fullrank.v1 import replay_pb2 as pb
from fullrank.v1.replay_pb2_grpc import ReplayServiceStub

WriteCall: TypeAlias = grpc.aio.StreamStreamCall[pb.WriteRequest, pb.WriteResponse]

AGAIN_S = 0.1
"""Pause before a broken stream is opened again."""


class RefusedEpisode(NamedTuple):
    """An episode that replay did not store."""

    sequence: int
    version: int
    """Committed iterations behind the parameters with which it began."""
    field: str
    """The field that is wrong; ``version`` if the parameters were too old."""
    reason: str


class _Unsettled(NamedTuple):
    """An episode without an answer."""

    sequence: int
    version: int
    rows: FloatArray


class EpisodeWriter:
    """Writes episodes to a table that grows by arrival.

    It dials for as long as the service cannot be reached; meanwhile ``write`` waits once the window
    is full.

    Args:
        address: ``host:port`` of replay.
        run_term: Term of the controller that opened the table.
        window: Most episodes that are sent and not settled.
        security: Identity of the caller.
        refused: Called for each episode that is not stored.

    Attributes:
        writer: 48 bits that name it.
        settled: Sequence up to which every episode is stored or was refused.
        answered: Number of episodes that are stored or were refused.
        streams: Number of streams that were opened.
    """

    def __init__(
        self,
        address: str,
        *,
        run_term: RunTerm,
        window: int = 8,
        security: Security = PLAINTEXT,
        refused: Callable[[RefusedEpisode], None] = lambda refusal: None,
    ) -> None:
        assert 1 <= window <= WINDOW
        self.writer = 1 + randbelow(MOST)
        self.settled = self.answered = self.streams = self._last = 0
        self._channel = open_channel(address, trust=security.towards(Role.REPLAY))
        self._stub = ReplayServiceStub(self._channel)
        self._peer = f"replay {plain(address)}"
        self._run_term, self._window, self._refused = run_term, window, refused
        self._unsettled: deque[_Unsettled] = deque()
        self._moved, self._added = asyncio.Condition(), asyncio.Event()
        self._failure: FullrankError | None = None
        self._dialling: asyncio.Task[None] | None = None

    async def write(self, rows: FloatArray, *, version: int, sequence: int | None = None) -> int:
        """Send an episode as soon as the window has room; returns its sequence.

        Args:
            rows: Packed steps without authorship, shape (n, entries); not changed until settled.
            version: Committed iterations behind the parameters with which it began.
            sequence: Number of the episode, later than all before; by default the next one.

        Raises:
            StaleTerm: Another controller has opened the table; ``renew`` with its term.
            FullrankError: The service refuses this writer.
        """
        await self._until(lambda: len(self._unsettled) < self._window)
        assert sequence is None or sequence > self._last
        self._last = self._last + 1 if sequence is None else sequence
        self._unsettled.append(_Unsettled(self._last, version, rows))
        self._dial()
        self._added.set()
        return self._last

    async def flush(self) -> None:
        """Wait until every episode is settled; raises like ``write``."""
        await self._until(lambda: not self._unsettled)

    def renew(self, run_term: RunTerm) -> None:
        """Go on under the term of the controller that opened the table last."""
        if isinstance(self._failure, StaleTerm):
            self._failure = None
        if run_term != self._run_term and self._dialling is not None:
            self._dialling.cancel()
            self._dialling = None
        self._run_term = run_term
        if self._unsettled:
            self._dial()

    async def close(self) -> None:
        """End the stream and give up unsettled episodes."""
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait({self._dialling})
        await self._channel.close()

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self._failure is not None or holds())
        if self._failure is not None:
            raise self._failure

    def _dial(self) -> None:
        if self._dialling is None or self._dialling.done():
            self._dialling = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        """Keep a stream open, until the service refuses the writer."""
        while True:
            try:
                with translated(self._peer):
                    await self._converse()
            except ServiceLost:
                await asyncio.sleep(AGAIN_S)
            except FullrankError as error:
                async with self._moved:
                    self._failure = error
                    self._moved.notify_all()
                return

    async def _converse(self) -> None:
        """Open a stream, send the unsettled episodes, and take the answers until it ends."""
        call: WriteCall = self._stub.Write(wait_for_ready=True)
        self.streams += 1
        try:
            await call.write(pb.WriteRequest(hello=self._hello()))
            await self._take(await _answer(call))
            sending = asyncio.create_task(self._send(call))
            try:
                while True:
                    await self._take(await _answer(call))
            finally:
                sending.cancel()
                await asyncio.wait({sending})
        finally:
            call.cancel()

    def _hello(self) -> pb.WriterHello:
        first = self._unsettled[0].sequence if self._unsettled else self._last + 1
        return pb.WriterHello(
            table=TABLE,
            run_term=run_term_message(self._run_term),
            writer=self.writer,
            first=first,
            version=__version__,
        )

    async def _send(self, call: WriteCall) -> None:
        """Send the episodes in order, and later ones as they are added."""
        sent = 0
        with suppress(*CALL_ENDED):
            while True:
                self._added.clear()
                for episode in list(self._unsettled):
                    if episode.sequence > sent:
                        sent = episode.sequence
                        for request in episode_requests(*episode):
                            await call.write(request)
                await self._added.wait()  # also where an answer has settled what was never sent

    async def _take(self, response: pb.WriteResponse) -> None:
        """Take an answer: settled episodes leave the window."""
        async with self._moved:
            refused = {refusal.sequence: refusal for refusal in response.refused}
            self.settled = max(self.settled, response.settled)
            for episode in list(self._unsettled):
                refusal = refused.get(episode.sequence)
                if refusal is not None or episode.sequence <= response.settled:
                    self._unsettled.remove(episode)
                    self.answered += 1
                if refusal is not None:
                    self._refused(
                        RefusedEpisode(
                            episode.sequence, episode.version, refusal.field, refusal.reason
                        )
                    )
            self._moved.notify_all()


async def _answer(call: WriteCall) -> pb.WriteResponse:
    response = checked(await call.read())
    if not isinstance(response, pb.WriteResponse):
        raise ServiceLost("the stream of episodes ended")
    return response


def episode_requests(sequence: int, version: int, rows: FloatArray) -> Iterator[pb.WriteRequest]:
    """The messages of one episode; the first of them names it."""
    head: pb.EpisodeHead | None = pb.EpisodeHead(sequence=sequence, version=version)
    for chunk in chunks(rows, array_id=0):
        yield pb.WriteRequest(episode=head, chunk=chunk)
        head = None


SamplesCall: TypeAlias = grpc.aio.StreamStreamCall[pb.GetSamplesRequest, pb.GetSamplesResponse]

T = TypeVar("T")


class SampleStream:
    """The stream of a client's minibatches, which are requested one after the other.

    Args:
        dial: Opens a stream.
        peer: The service, for messages.
    """

    def __init__(self, dial: Callable[[], SamplesCall], *, peer: str) -> None:
        self._dial, self._peer = dial, peer
        self._call: SamplesCall | None = None

    async def using(self, call: Awaitable[T]) -> T:
        """Await a call that uses the stream; after any error the next one opens another."""
        try:
            return await call
        except BaseException:
            if self._call is not None:
                self._call.cancel()
            self._call = None
            raise

    async def _next(self) -> pb.GetSamplesResponse:
        response = checked(await self._call.read()) if self._call is not None else None
        if not isinstance(response, pb.GetSamplesResponse):
            raise ServiceLost(f"{self._peer}: the stream of minibatches ended")
        return response

    async def fetch(self, request: pb.GetSamplesRequest, row_size: int) -> Gathered:
        """Request a minibatch, and assemble it from its responses."""
        if self._call is None:
            self._call = self._dial()
        await self._call.write(request)
        response = await self._next()
        sample, items = sample_of(request.sample), tuple(request.items)
        rows, lengths = len(items) or sample.size, np.array(response.lengths, np.int64)
        most = rows_per_minibatch(4 * row_size)
        if sample.episodes is not None:
            rows = response.chunk.total // (4 * row_size)
        elif items and (lengths != 1).any():
            raise InvalidContribution(f"{self._peer}: lengths of transitions that are not 1")
        if not 1 <= rows <= most:
            raise InvalidContribution(f"{self._peer}: {rows} rows, and from 1 to {most} can come")
        if items and (len(lengths) != sample.size or lengths.sum() > most):
            raise InvalidContribution(
                f"{self._peer}: {len(lengths)} lengths, of {lengths.sum()} rows, for a sample of "
                f"{sample.size}"
            )
        batch = np.empty((rows, row_size), np.float32)
        assembler = Assembler(batch, array_id=0)
        assembler.add(response.chunk)
        while not assembler.complete:
            assembler.add((await self._next()).chunk)
        if not items:
            return Gathered(batch, batch.nbytes)
        return spread(batch, lengths, items, length_column=sample.length_column)
