"""Minibatches: gathered once, their items encoded once for all learners that ask for them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from fullrank.common.errors import Overloaded
from fullrank.common.types import FloatArray, IntArray
from fullrank.replay.items import Items
from fullrank.replay.limits import MINIBATCH_BYTES
from fullrank.replay.samplers import Sample

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
