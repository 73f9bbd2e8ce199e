"""Reads: minibatches are gathered between appends, and sent."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray, IntArray
from fullrank.net.codec import SAMPLE_CHUNK, encode_chunks
from fullrank.net.messages import sample_of
from fullrank.replay.items import Items, rows_of_items
from fullrank.replay.limits import rows_per_minibatch
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import Table
from fullrank.v1 import replay_pb2 as pb
from fullrank_replay.minibatches import GatheredRows, Minibatches
from fullrank_replay.pacing import Pacing

SendEncoded: TypeAlias = Callable[[bytes], Awaitable[None]]


class Reads:
    """Minibatches of all tables.

    Args:
        store: The tables.
        pacing: Admits gathers between appends.
        gathered: Called with table and iteration once a minibatch was gathered.
    """

    def __init__(
        self, store: Store, pacing: Pacing, *, gathered: Callable[[str, int], None]
    ) -> None:
        self._store, self._pacing, self._note = store, pacing, gathered
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
        if sample.episodes is not None and rows <= rows_per_minibatch(row_bytes):
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
        self._note(sample.table, sample.iteration)
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
