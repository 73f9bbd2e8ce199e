"""Calls of replay: repeated while it is away, and the stream of a client's minibatches."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import grpc
import numpy as np

from fullrank.common.errors import InvalidContribution, Overloaded, ServiceLost
from fullrank.net.codec import Assembler
from fullrank.net.errors import checked, translated
from fullrank.net.messages import sample_of
from fullrank.replay.items import Gathered, spread
from fullrank.replay.limits import rows_per_minibatch
from fullrank.v1 import replay_pb2 as pb

SamplesCall: TypeAlias = grpc.aio.StreamStreamCall[pb.GetSamplesRequest, pb.GetSamplesResponse]

T = TypeVar("T")

AGAIN_S = 0.1
"""Pause before a failed call is repeated."""


class Repeated:
    """Calls of a service that are repeated while it restarts, is away or has no room.

    A service that has no room, as on a full disk, is there: such a call fails at the deadline.

    Args:
        peer: The service, for messages.
        deadline_s: For all attempts of a call together, or until it is said that they wait.
        away: Takes the reason for which calls wait, each time that the deadline has passed, and an
            empty one once none waits any more; it may raise. None: a call fails at the deadline.
    """

    def __init__(
        self, peer: str, *, deadline_s: float, away: Callable[[str], None] | None = None
    ) -> None:
        self._peer, self._deadline_s, self._away = peer, deadline_s, away
        self._waiting = 0

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call that failed or was deferred, for as long as that may help."""
        return await self.outlast(lambda: self.within_deadline(call))

    async def outlast(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat attempts, each of which has the deadline, while the service is away."""
        away, waits = self._away, False
        try:
            while True:
                try:
                    return await attempt()
                except ServiceLost as error:
                    if away is None or isinstance(error, Overloaded):
                        raise
                    self._waiting += not waits
                    waits = True
                    away(str(error))
        finally:
            self._waiting -= waits
            if away is not None and waits and not self._waiting:
                away("")

    async def within_deadline(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call that failed or was deferred, until the deadline."""
        last = ServiceLost(f"{self._peer}: no answer within {self._deadline_s:.0f} s")
        try:
            async with asyncio.timeout(self._deadline_s):
                while True:
                    try:
                        with translated(self._peer):
                            return await call()
                    except ServiceLost as error:
                        last = error
                    after_s = last.retry_after_s if isinstance(last, Overloaded) else 0.0
                    await asyncio.sleep(max(AGAIN_S, after_s))
        except TimeoutError:
            raise last from None


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
        if sample.draw.searched:
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
        return spread(batch, lengths, items, length_column=sample.draw.length)
