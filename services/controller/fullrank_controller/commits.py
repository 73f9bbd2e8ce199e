"""Applied iterations on their way to the journal and the store, while the run goes on.

Saturated ones, whose gradients were lost to the range of float32 or clamped (ADR 109), are named.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

from fullrank.algorithms.optimiser import CLIP_OVERFLOW
from fullrank.algorithms.updates import CLAMPED
from fullrank.rounds.decision import Decoded
from fullrank.runs.record import METRICS, IterationRecord
from fullrank_controller.persistence.store import Applied
from fullrank_controller.rounds.replay_pipeline import ReplayPipeline
from fullrank_controller.term import Term
from fullrank_controller.watchdog import WRITING

log = logging.getLogger(__name__)


MOST_BYTES = 256 * 2**20
"""Updates that are not durable, beyond which the run waits for its store."""


class Commits:
    """Makes applied iterations durable, then publishes them.

    Args:
        term: The open parts of the term, whose store makes iterations durable and publishes them.
        pipeline: Takes note of those that are durable.

    Attributes:
        head: Replay position from which a run resumes after what is durable.
    """

    def __init__(self, term: Term, pipeline: ReplayPipeline) -> None:
        self._run, self._store, self._watchdog = term.run, term.store, term.watchdog
        self._pipeline = pipeline
        self._applied = deque[Applied]()
        self._hurried, self._moved = asyncio.Event(), asyncio.Event()
        self.head = 0

    def add(self, applied: Applied) -> None:
        """Take an iteration that was applied."""
        self._applied.append(applied)

    async def within_lag(self) -> None:
        """Wait while the store is two writes behind, or holds up too many bytes."""
        clock, most_s = asyncio.get_running_loop().time, 2 * self._store.lag_s
        while self._applied:
            full = sum(each.size_bytes for each in self._applied) > MOST_BYTES
            late = most_s and clock() > self._applied[0].at + most_s
            if not (full and len(self._applied) > 1) and not late:
                return
            await self._next(hurry=full)

    async def settled(self) -> None:
        """Return once what is applied is durable."""
        while self._applied:
            await self._next(hurry=True)

    async def _next(self, *, hurry: bool) -> None:
        """Wait until further iterations are durable."""
        if hurry:
            self.hurry()
        self._moved.clear()
        await self._moved.wait()

    def hurry(self) -> None:
        """Have written at once what is applied."""
        self._hurried.set()

    async def write(self) -> int:
        """Make what is applied durable, then publish it: what is published survives any crash.

        Returns:
            The durable iterations.
        """
        await self._store.due(self._hurried)
        taken, progress = list(self._applied), self._run.progress
        caveats = progress.lasting
        batch = [replace(each, record=replace(each.record, caveats=caveats)) for each in taken]
        with ExitStack() as stack:
            stack.enter_context(self._watchdog.phase(WRITING["journal"]))
            for each in taken:
                stack.enter_context(each.round.timeline.span)
                stack.enter_context(each.span)
            await self._store.append(batch)
        for applied in batch:
            record = applied.record
            if not record.exact and record.variance is None:
                self._record_inexact(record, applied.round.decision)
            self.head = applied.head
            progress.committed = record.iteration + 1
            self._pipeline.committed(record.iteration + 1)
            self._store.publish(record)
            self._applied.popleft()
            if self._applied:
                await asyncio.sleep(0)  # a round is under way
        self._moved.set()
        return progress.committed

    def _record_inexact(self, record: IterationRecord, decision: Decoded) -> None:
        alone = not decision.auditable and decision.reason
        cause = alone or "its bits depend on who answered"
        caveat = (
            f"iteration {record.iteration} is not exact: {cause}, no entry is further than "
            f"{record.error_bound:.1e} from the truth"
        )
        if not alone:
            caveat += (
                f"; no digest proves its vectors: a wrong one would show if it were of learners "
                f"{list(decision.auditable)}, and be named if it were of {list(decision.nameable)}"
            )
        self._run.progress.record_caveat("exact", caveat)
        log.warning("inexact received=%s %s", record.received, caveat)


MEANING = {
    CLIP_OVERFLOW: "gradients vanished, because their norms overflow float32",
    CLAMPED: "statistics reached the bound of exact sums, or gradients were clamped or left out",
}


class SaturationLog:
    """Says that iterations were saturated: the first as a caveat of the run, the rest in the log.

    Args:
        term: Has the caveats that the run has for good, and keeps another one of them.
    """

    def __init__(self, term: Term) -> None:
        self._held, self._keep = term.directory.caveats, term.keep_caveat
        self._count = dict.fromkeys(MEANING, 0)

    def note(self, iteration: int, statistics: Mapping[str, float | None]) -> None:
        """Take the statistics of an update."""
        for kind, meaning in MEANING.items():
            places = [name.partition("/")[2] for name in statistics if name.startswith(f"{kind}/")]
            if not places:
                continue
            self._count[kind] += 1
            count, where = self._count[kind], ", ".join(places)
            if count == 1 and not any(caveat.startswith(meaning) for caveat in self._held):
                self._keep(
                    f"{meaning}, first in iteration {iteration} ({where}), and later ones as "
                    f"{METRICS} says; scale the rewards to magnitudes around 1"
                )
            if count == 10 ** (len(str(count)) - 1):
                log.warning(
                    "saturated iteration=%d count=%d %s %s", iteration, count, where, meaning
                )
