"""The stream by which a client of replay requests minibatches."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

import grpc
import numpy as np

from fullrank.common.errors import InvalidContribution, ServiceLost
from fullrank.replay.items import Gathered, spread
from fullrank.replay.limits import rows_per_minibatch
from fullrank.rpc.codec import Assembler
from fullrank.rpc.deserializing import checked
from fullrank.rpc.messages import sample_of
from fullrank.v1 import replay_pb2 as pb

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
