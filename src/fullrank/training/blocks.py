"""Blocks of copies and their players: keyed collection on machines that may be slow or die.

A block plays one whole episode in each of its copies. Its rows follow from (seed, iteration, block)
and the parameters of a stated version, so that any process may play it, and several may: the first
answer counts, and rows are taken in the order of keys.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

from fullrank.common.errors import EnvironmentFailed

FAILURES = 3
"""Failures of one block after which the run ends, once no collector is left that might play it."""

GONE = -1
"""Stands for the collectors that are gone in the failures of a block."""


class BlockKey(NamedTuple):
    """A block of an iteration; keys are ordered as their rows are."""

    iteration: int
    block: int


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Division of E copies into blocks of equal size, of which the last may be smaller."""

    patience: ClassVar[int | None] = None
    """Failures in a row after which a collector ends; None: the run decides."""
    copies: int
    size: int

    @property
    def blocks(self) -> int:
        """Number of blocks in an iteration."""
        return -(-self.copies // self.size)

    def copies_of(self, block: int) -> range:
        """Return the numbers of a block's copies."""
        return range(block * self.size, min(self.copies, (block + 1) * self.size))

    def keys(self, iteration: int) -> list[BlockKey]:
        """Return the keys of an iteration's blocks, ascending."""
        return [BlockKey(iteration, block) for block in range(self.blocks)]

    def named(self, key: BlockKey) -> str:
        """Name a block by its iteration and its copies."""
        copies = self.copies_of(key.block)
        return f"iteration {key.iteration}, copies {copies.start} to {copies.stop - 1}"


class FreePlan(BlockPlan):
    """Blocks of free collection, in whose keys the controller's term replaces the iteration."""

    patience = FAILURES

    def named(self, key: BlockKey) -> str:
        """Name a block by its number and its term."""
        return f"block {key.block} of term {key.iteration}"


class Answer(Protocol):
    """Result that a collector returns for a block."""

    @property
    def digest(self) -> bytes:
        """Digest of the played episodes."""


BlockAnswer = TypeVar("BlockAnswer", bound=Answer)


@dataclass(slots=True)
class _OpenBlock(Generic[BlockAnswer]):
    """A block that is not taken yet, or that a collector still plays."""

    holders: dict[int, float] = field(default_factory=dict)
    """Collectors that play it, and when they began."""
    answer: BlockAnswer | None = None
    """The first answer, until it is taken."""
    digest: bytes = b""
    """Digest of the first answer; empty before."""
    first: int = -1
    """Collector whose answer counted."""
    failures: Counter[int] = field(default_factory=Counter)
    """Number of failures of each collector."""

    @property
    def is_over(self) -> bool:
        """True once its answer was taken and no collector plays it."""
        return bool(self.digest) and self.answer is None and not self.holders

    def await_answer(self) -> None:
        """Wait for the first answer, also after an earlier one."""
        self.answer, self.digest, self.first = None, b"", -1

    def take_answer(self, collector: int, played: BlockAnswer) -> int | None:
        """Take the answer of a holder; return who answered first if that was something else."""
        del self.holders[collector]
        digest = played.digest
        if not self.digest:
            self.answer, self.digest, self.first = played, digest, collector
        return self.first if self.digest != digest else None

    def record_failure(self, collector: int) -> int:
        """Record that a holder could not play it; return the number of failures."""
        del self.holders[collector]
        self.failures[collector] += 1
        return self.failures.total()

    def forget(self, collector: int) -> None:
        """Forget a collector, but not that the block failed on it."""
        self.holders.pop(collector, None)
        self.failures[GONE] += self.failures.pop(collector, 0)


class BlockScheduler(Generic[BlockAnswer]):
    """Assigns open blocks to idle collectors, one at a time, in the order of keys.

    A block that is overdue is reassigned to an idle collector once no block waits. Every block is
    taken exactly once, with the first answer, however often it was assigned.
    """

    def __init__(self) -> None:
        self._open: dict[BlockKey, _OpenBlock[BlockAnswer]] = {}
        self._busy: dict[int, BlockKey | None] = {}

    @property
    def waiting(self) -> list[BlockKey]:
        """Return the blocks without an answer, ascending."""
        return sorted(key for key, block in self._open.items() if not block.digest)

    def holders(self, key: BlockKey) -> list[int]:
        """Return the collectors that play a block, ascending."""
        block = self._open.get(key)
        return sorted(block.holders) if block is not None else []

    def open(self, keys: Sequence[BlockKey]) -> None:
        """Add blocks; one that was taken waits again."""
        self._open = {key: block for key, block in self._open.items() if not block.is_over}
        for key in keys:
            self._open.setdefault(key, _OpenBlock()).await_answer()

    def attach(self, collector: int) -> None:
        """Add an idle collector."""
        self._busy[collector] = None

    def detach(self, collector: int) -> None:
        """Forget a collector; the block that it plays waits again."""
        self._busy.pop(collector, None)
        for block in self._open.values():
            block.forget(collector)

    def assign(self, now: float, *, deadline_s: float) -> list[tuple[int, BlockKey]]:
        """Give every idle collector a block, as far as there are any.

        Args:
            now: Current time, seconds.
            deadline_s: Age beyond which a block is overdue, seconds.
        """
        assigned = []
        for collector in sorted(idle for idle, key in self._busy.items() if key is None):
            key = self._next(collector, overdue_since=now - deadline_s)
            if key is not None:
                self._busy[collector] = key
                self._open[key].holders[collector] = now
                assigned.append((collector, key))
        return assigned

    def _next(self, collector: int, *, overdue_since: float) -> BlockKey | None:
        """Return the block for an idle collector: one without a holder, else an overdue one."""
        late = {
            holder
            for block in self._open.values()
            for holder, begun in block.holders.items()
            if begun <= overdue_since
        }
        overdue = None
        for key in self.waiting:
            block = self._open[key]
            fewest = min(block.failures[player] for player in self._busy.keys() - late)
            if block.failures[collector] > fewest:
                continue  # another one will have a try at it
            if not block.holders:
                return key
            if overdue is None and block.holders.keys() <= late:
                overdue = key
        return overdue

    def begun_at(self) -> float | None:
        """Return when the block was assigned that is overdue next; None if no block is played."""
        times = [
            max(block.holders.values())
            for block in self._open.values()
            if block.holders and not block.digest
        ]
        return min(times, default=None)

    def answer(self, collector: int, key: BlockKey, played: BlockAnswer) -> int | None:
        """Take an answer of a collector to the block that it plays; the first one counts.

        Returns:
            The collector of the first answer, if this one differs from it.
        """
        if self._busy.get(collector) != key:
            return None
        self._busy[collector] = None
        return self._open[key].take_answer(collector, played)

    def fail(self, collector: int, key: BlockKey, reason: str) -> None:
        """Record that a collector could not play its block, which waits again.

        Raises:
            EnvironmentFailed: The block has failed ``FAILURES`` times, and at least once on every
                attached collector; or on those attached so often for each of them.
        """
        if self._busy.get(collector) != key:
            return
        self._busy[collector] = None
        block = self._open[key]
        failures = block.record_failure(collector)
        tries = [block.failures[each] for each in self._busy]
        over = failures >= FAILURES if all(tries) else sum(tries) >= FAILURES * len(tries)
        if over and not block.digest:
            raise EnvironmentFailed(f"{reason}; block {key.block} failed {failures} times")

    def take(self, keys: Sequence[BlockKey]) -> list[BlockAnswer] | None:
        """Return the answers to open blocks in the order of keys, once all are there."""
        blocks = [self._open[key] for key in sorted(keys)]
        answers = [block.answer for block in blocks if block.answer is not None]
        if len(answers) < len(blocks):
            return None
        for block in blocks:
            block.answer = None
        return answers


def deadline_of(
    durations_s: Sequence[float], *, first_s: float, factor: float, least_s: float
) -> float:
    """Return the age at which a block is overdue, from the durations of recent blocks.

    It is ``factor`` times their 99th percentile, at least ``least_s``; ``first_s`` without any.
    """
    if not durations_s:
        return first_s
    return max(least_s, factor * sorted(durations_s)[int(0.99 * (len(durations_s) - 1))])
