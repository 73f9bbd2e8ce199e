"""Encoded minibatches: gathered once for all learners, within a bound of memory."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from fullrank.common.errors import Overloaded
from fullrank.replay import Sample
from fullrank.replay.limits import MINIBATCH_BYTES

Encoded: TypeAlias = "asyncio.Task[list[bytes]]"

KEPT = 2
"""Minibatches kept: that of the current iteration, and the previous one for late learners."""

RETRY_AFTER_S = 1.0
"""Seconds after which a refused minibatch may be asked for again."""


@dataclass(slots=True)
class _Minibatch:
    encoded: Encoded
    size_bytes: int
    readers: int = 0


class Minibatches:
    """Minibatches by sample.

    Args:
        encode: Gathers and encodes one.
    """

    def __init__(self, encode: Callable[[Sample], Coroutine[None, None, list[bytes]]]) -> None:
        self._encode = encode
        self._held: dict[Sample, _Minibatch] = {}

    def clear(self) -> None:
        """Forget all minibatches: from now on the same samples draw other rows."""
        self._held.clear()

    @contextmanager
    def lent(self, sample: Sample, *, size_bytes: int) -> Iterator[Encoded]:
        """A minibatch of ``size_bytes``, kept while it is sent.

        Raises:
            Overloaded: The minibatches that are being sent leave no room for it.
        """
        minibatch = self._held.get(sample) or self._begun(sample, size_bytes)
        minibatch.readers += 1
        try:
            yield minibatch.encoded
        finally:
            minibatch.readers -= 1
            self._forget(keep=KEPT)

    def _begun(self, sample: Sample, size_bytes: int) -> _Minibatch:
        self._forget(keep=KEPT - 1)
        if self._held_bytes + size_bytes > MINIBATCH_BYTES:
            self._forget(keep=0)
        if self._held and self._held_bytes + size_bytes > MINIBATCH_BYTES:
            raise Overloaded(
                f"{self._held_bytes} bytes of minibatches are being sent, there is no room for "
                f"{size_bytes} more; ask again",
                retry_after_s=RETRY_AFTER_S,
            )
        minibatch = _Minibatch(asyncio.create_task(self._encode(sample)), size_bytes)
        self._held[sample] = minibatch
        return minibatch

    @property
    def _held_bytes(self) -> int:
        return sum(minibatch.size_bytes for minibatch in self._held.values())

    def _forget(self, *, keep: int) -> None:
        """Drop the oldest minibatches without readers until ``keep`` are left."""
        surplus = len(self._held) - keep
        idle = [sample for sample, minibatch in self._held.items() if not minibatch.readers]
        for sample in idle[: max(0, surplus)]:
            del self._held[sample]
