"""The durable side of a run: journal, history, checkpoints, and the sinks that follow them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from math import inf

from fullrank.audit.proof import BLOCKS
from fullrank.common.failpoints import reach
from fullrank.common.updates import update_digest
from fullrank.net.tracing import TraceSpan
from fullrank.replay.staging import AcceptedBlock
from fullrank.runs.checkpoint import save, saved
from fullrank.runs.events import Committed, EventLog, Published, TakenBack
from fullrank.runs.identity import CHECKPOINTS
from fullrank.runs.journal import Journal
from fullrank.runs.journal_format import encode
from fullrank.runs.record import METRICS, IterationRecord, to_facts
from fullrank.runs.recovery import drop_condemned, reaches_back_to
from fullrank.runs.store import SharedStore
from fullrank.sinks.jsonl import JsonLines, condemn
from fullrank.training.rollouts import Collected
from fullrank.wiring.training import Training
from fullrank_controller.persistence.rows import StoredRows
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.rounds.port import DecidedRound
from fullrank_controller.rounds.timeline import Timeline

log = logging.getLogger(__name__)

TIMES = {each.name for each in fields(Timeline)} & {each.name for each in fields(IterationRecord)}
"""What a record takes over from a timeline."""
GATHER_S = 0.1
"""Least time between two writes of updates over one collection unless they hurry, seconds: a write
costs as much CPU as a small update."""
PATIENCE_S = 10.0
"""Longest wait of a run that ends for rows of its last checkpoint; the log has its iterations."""


def record_of(
    decided: DecidedRound,
    collected: Collected,
    *,
    variant: str,
    collect_s: float,
    round_s: float,
    iteration_s: float,
    agent_updates: int,
    env_steps: float,
    statistics: Mapping[str, float],
) -> IterationRecord:
    """The record of an iteration whose update is applied.

    Args:
        decided: Its round.
        collected: The collection that it draws from.
        variant: Variant of the environment.
        collect_s: Time to collect and append the transitions, seconds.
        round_s: From the first assignment until the parameters were updated, seconds.
        iteration_s: From the update before until then, seconds.
        agent_updates: Agents times items of the minibatch; 0 where learners draw their own.
        env_steps: Environment steps of the collection, divided among the updates over it.
        statistics: Statistics of the update.
    """
    updates, steps = (
        count / iteration_s if count and iteration_s else None
        for count in (agent_updates, env_steps)
    )
    decision, timeline = decided.decision, decided.timeline
    returns, sides = collected.returns, collected.side_returns
    return IterationRecord(
        iteration=decided.ids.iteration,
        term=decided.ids.term,
        epoch=decided.ids.epoch,
        attempt=decided.ids.attempt,
        hedged=decided.hedged,
        code=decided.code.name,
        code_rows=decided.code.rows,
        rows_per_learner=decided.code.rows_per_learner,
        tolerance=decided.code.tolerance,
        variant=variant,
        return_mean=float(returns.mean()) if len(returns) else None,
        side_returns={side: float(ends.mean()) for side, ends in sides.items() if len(ends)},
        win_rate=collected.win_rate,
        round_s=round_s,
        collect_s=collect_s,
        play_s=collected.play_s,
        update_s=round_s - min(timeline.assigned_s.values(), default=0.0),
        iteration_s=iteration_s,
        agent_updates_per_s=updates,
        env_steps_per_s=steps,
        audited=decided.reported,
        received=tuple(j for j in decided.received if j != decision.culprit),
        late=decided.late,
        exact=decision.exact,
        condition=decided.condition,
        error_bound=decision.error_bound,
        variance=decision.variance,
        update_digest=update_digest(decision.digests),
        statistics={**statistics, **collected.statistics},
        quarantined=decided.quarantined,
        bytes_sent=dict(decided.bytes_sent),
        bytes_received=dict(decided.bytes_received),
        **{name: getattr(timeline, name) for name in TIMES},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An applied iteration that is not durable yet."""

    record: IterationRecord
    round: DecidedRound
    blocks: Sequence[AcceptedBlock] | None
    """As of ``Collected``."""
    head: int
    """Replay position to resume from after it."""
    span: TraceSpan
    """The commit, which ends once it is durable."""
    at: float
    """When it was applied."""

    @property
    def size_bytes(self) -> int:
        """Return the size of its updates."""
        return self.round.decision.updates.nbytes


class RunStore:
    """Stores committed iterations, then publishes them.

    Args:
        directory: The run directory.
        training: Its state is checkpointed.
        journal: The segment of this term.
        event_log: The history of the controller.
        metrics: The line of each published record.
        publish: Sinks of records, which follow it.
        keep: Checkpoints to keep.
        lag_s: Least time between two writes to the store, seconds; 0 if each iteration is written.
        gather_s: The same where there is no such lag, unless they hurry.

    Attributes:
        lag_s: As given.
        rows: The rows of replay in the store, once replay is dialled.
    """

    def __init__(
        self,
        directory: RunDirectory,
        training: Training,
        *,
        journal: Journal,
        event_log: EventLog,
        metrics: JsonLines,
        publish: Callable[[IterationRecord], None],
        keep: int,
        lag_s: float = 0.0,
        gather_s: float = 0.0,
    ) -> None:
        self.lag_s, self._writes_at = lag_s, -inf
        self._pause_s = lag_s or gather_s
        self.rows: StoredRows | None = None
        self._uploading: asyncio.Task[None] | None = None
        self._directory, self._training = directory, training
        self._journal, self._event_log = journal, event_log
        self._metrics, self._publish, self._keep = metrics, publish, keep

    async def due(self, hurry: asyncio.Event) -> None:
        """Return once what is applied may be written, or hurries."""
        if not self._pause_s:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._writes_at):
                await hurry.wait()
        hurry.clear()
        self._writes_at = asyncio.get_running_loop().time() + self._pause_s

    async def append(self, iterations: Sequence[Applied]) -> None:
        """Write iterations to the journal and the store, then to the history."""
        if self._uploading is not None and self._uploading.done():
            await self._uploading
        await asyncio.to_thread(self._append, iterations)
        for applied in iterations:
            record, decision = applied.record, applied.round.decision
            self._event_log.append(
                Committed(
                    term=record.term,
                    epoch=record.epoch,
                    iteration=record.iteration,
                    rows=decision.rows,
                    digest=record.update_digest,
                    exact=record.exact,
                    culprit=decision.culprit,
                )
            )

    def _append(self, iterations: Sequence[Applied]) -> None:
        for applied in iterations:
            self._journalise(applied, last=applied is iterations[-1])
        if self.rows is not None:
            self.rows.ship(iterations[-1].head)
        elif self._directory.store is not None:
            self._directory.store.ship()

    def _journalise(self, applied: Applied, *, last: bool) -> None:
        record, decided, blocks = applied.record, applied.round, applied.blocks
        drawn = {} if blocks is None else {BLOCKS: blocks}
        iteration, updates = record.iteration, decided.decision.updates
        facts = {"record": to_facts(record), **decided.evidence.to_facts(), **drawn}
        reproducible = record.exact and blocks is None  # the next draw reaches further
        stored = self._journal.append(
            iteration, facts=facts, updates=updates, reproducible=reproducible, durable=last
        )
        if (store := self._directory.store) is not None:  # which recovery computes again
            kept = not reproducible or not self.lag_s
            store.add(stored.segment, encode(iteration, facts, updates, stored=kept))

    async def condemn(self, first: int, reason: str) -> None:
        """Condemn the iterations from ``first`` on, in the history, the journal and the store.

        Their records and policies do not stand from then on; ``restore`` sees to the same.

        Raises:
            StaleTerm: A later controller has taken the run.
        """
        self._event_log.append(TakenBack(term=self._directory.term, first=first))
        await asyncio.to_thread(self._condemn, first, reason)

    def _condemn(self, first: int, reason: str) -> None:
        directory = self._directory
        stored = self._journal.condemn(first, reason)
        if directory.store is not None:
            directory.store.add(stored.segment, stored.pieces)
            directory.store.ship()
        condemn(directory.path / METRICS, first, term=directory.term)
        drop_condemned(directory.path)

    def publish(self, record: IterationRecord) -> None:
        """Publish a stored iteration.

        Raises:
            FullrankError: The disk does not take its line; the next controller publishes it.
        """
        self.publish_again(record)
        self._event_log.append(Published(term=record.term, iteration=record.iteration))
        reach("iteration.published")

    def publish_again(self, record: IterationRecord) -> None:
        """Publish an iteration that an earlier term committed, as ``publish`` does."""
        self._metrics.write(record)
        self._publish(record)

    async def checkpoint(self, *, committed: int, head: int) -> None:
        """Save the state after ``committed`` iterations, and prune the journal.

        Args:
            committed: Iterations that are applied and stored.
            head: Replay position to resume from.
        """
        await self.uploaded()
        await asyncio.to_thread(self._checkpoint, committed, head)
        if (store := self._directory.store) is not None:
            self._uploading = asyncio.create_task(self._upload(store, store.log.next, head))

    async def _upload(self, store: SharedStore, since: int, head: int) -> None:
        """Store the checkpoint, and the rows from which a run draws that resumes from it."""
        if self.rows is not None:
            await self.rows.store(head)
        else:
            await asyncio.to_thread(store.plan, head=head)
        await asyncio.to_thread(store.checkpoint, since)

    async def uploaded(self) -> None:
        """Return once the last checkpoint is in the store; raises what prevented that."""
        if self._uploading is not None:
            await asyncio.shield(self._uploading)

    async def close(self) -> None:
        """Return once all that can be stored is stored, as replay may be away for good."""
        upload = self._uploading
        while upload is not None and not upload.done():
            await asyncio.wait({upload}, timeout=PATIENCE_S)
            if self.rows is not None and self.rows.reading and not upload.done():
                log.warning("checkpoint_not_stored reason=replay does not answer")
                upload.cancel()
                await asyncio.wait({upload})
                upload = self._uploading = None
        await self.uploaded()
        await self.keep()

    async def keep(self) -> None:
        """Write verdicts and caveats that are not in the store."""
        if (store := self._directory.store) is not None:
            await asyncio.to_thread(store.keep)

    def _checkpoint(self, committed: int, head: int) -> None:
        directory, checkpoints = self._directory, self._directory.path / CHECKPOINTS
        directory.confirm()
        self._metrics.sync()  # the journal loses what the checkpoint has
        own = {name: getattr(directory, name) for name in ("run", "term", "config_digest")}
        save(
            checkpoints,
            iteration=committed - 1,
            arrays=self._training.state(resume_at=committed),
            facts={**own, "replay_head": head},
            keep=self._keep,
        )
        keep_from = reaches_back_to(saved(checkpoints), keep=self._keep)
        self._journal.begin_segment(committed, keep_from=keep_from)
