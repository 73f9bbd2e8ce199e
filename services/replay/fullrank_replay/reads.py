"""Reads: minibatches are gathered between appends, and sent."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from fullrank.common.errors import InvalidContribution, Overloaded
from fullrank.common.types import FloatArray, IntArray
from fullrank.net.codec import SAMPLE_CHUNK, encode_chunks
from fullrank.net.messages import sample_of
from fullrank.replay.items import Items, rows_of_items
from fullrank.replay.limits import MINIBATCH_BYTES, rows_per_minibatch
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import Table
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.pacing import Pacing

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
    """

    def __init__(self, store: Store, pacing: Pacing) -> None:
        self._store, self._pacing = store, pacing
        self._minibatches = Minibatches(self._gathered)

    def clear(self, key: str) -> None:
        """Forget a table's minibatches: from now on the same samples draw other rows."""
        self._minibatches.clear(key)

    async def serve(self, requests: AsyncIterator[pb.GetSamplesRequest], send: SendEncoded) -> None:
        """Send the items asked for.

        Raises:
            FullrankError: The stream ends with an error.
        """
        async for request in requests:
            key = table_key(request.run, request.sample.table)
            sample = replace(sample_of(request.sample), table=key)
            size_bytes = await self._admitted(sample)
            with self._minibatches.lent(sample, size_bytes=size_bytes) as minibatch:
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
            runs = await self._pacing.locked(partial(table.runs, sample))
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
        rows = await self._pacing.locked(partial(_gather, table, sample))
        self._pacing.limiter(sample.table, window=table.capacity).sampled(sample.head)
        await self._pacing.notify()
        return rows


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
