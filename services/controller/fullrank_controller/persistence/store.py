"""The durable side of a run: journal, history, checkpoints, and the sinks that follow them."""

import asyncio
from collections.abc import Callable

from fullrank.audit.proof import BLOCKS
from fullrank.common.failpoints import reach
from fullrank.runs.checkpoint import save, saved
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Committed, Published, TakenBack
from fullrank.runs.journal import Journal, Record
from fullrank.runs.record import IterationRecord, to_facts
from fullrank.runs.recovery import drop_condemned, reaches_back_to
from fullrank.sinks.jsonl import condemn
from fullrank.wiring import Training
from fullrank_controller.persistence.records import DecidedIteration
from fullrank_controller.persistence.run_directory import RunDirectory


class RunStore:
    """Stores committed iterations, then publishes them.

    Args:
        directory: The run directory.
        training: Its state is checkpointed.
        journal: The segment of this term.
        event_log: The history of the controller.
        publish: Sinks of records.
        keep: Checkpoints to keep.
    """

    def __init__(
        self,
        directory: RunDirectory,
        training: Training,
        *,
        journal: Journal,
        event_log: EventLog,
        publish: Callable[[IterationRecord], None],
        keep: int,
    ) -> None:
        self._directory, self._training = directory, training
        self._journal, self._event_log = journal, event_log
        self._publish, self._keep = publish, keep

    async def append(self, record: IterationRecord, decided: DecidedIteration) -> None:
        """Write an iteration to the journal and its mirror, then to the history."""
        await asyncio.to_thread(self._append, record, decided)
        decision = decided.round.decision
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

    def _append(self, record: IterationRecord, decided: DecidedIteration) -> None:
        blocks = decided.collected.blocks
        drawn = {} if blocks is None else {BLOCKS: blocks}
        stored = self._journal.append(
            record.iteration,
            facts={"record": to_facts(record), **decided.round.evidence.to_facts(), **drawn},
            updates=decided.round.decision.updates,
            reproducible=record.exact and blocks is None,  # the next draw reaches further
        )
        self._mirror(stored)

    def _mirror(self, stored: Record) -> None:
        if self._directory.mirror is not None:
            self._directory.mirror.store(stored)
            reach("mirror.stored")

    async def condemn(self, first: int, reason: str) -> None:
        """Condemn the iterations from ``first`` on, in the history, the journal and its mirror.

        Their records and policies do not stand from then on; ``restore`` sees to the same.

        Raises:
            StaleTerm: A later controller has taken the run.
        """
        self._event_log.append(TakenBack(term=self._directory.term, first=first))
        await asyncio.to_thread(self._condemn, first, reason)

    def _condemn(self, first: int, reason: str) -> None:
        directory = self._directory
        self._mirror(self._journal.condemn(first, reason))
        condemn(directory.metrics, first, term=directory.term)
        drop_condemned(directory.path)

    def publish(self, record: IterationRecord) -> None:
        """Publish a stored iteration."""
        self.publish_again(record)
        self._event_log.append(Published(term=record.term, iteration=record.iteration))
        reach("iteration.published")

    def publish_again(self, record: IterationRecord) -> None:
        """Publish an iteration that an earlier term committed."""
        self._publish(record)

    async def checkpoint(self, *, committed: int, head: int) -> None:
        """Save the state after ``committed`` iterations, and prune the journal.

        Args:
            committed: Iterations that are applied and stored.
            head: Replay position to resume from.
        """
        await asyncio.to_thread(self._checkpoint, committed, head)

    def _checkpoint(self, committed: int, head: int) -> None:
        directory = self._directory
        directory.confirm()
        path = save(
            directory.checkpoints,
            iteration=committed - 1,
            arrays=self._training.state(resume_at=committed),
            facts={"run": directory.run, "term": directory.term, "replay_head": head},
            keep=self._keep,
        )
        keep_from = reaches_back_to(saved(directory.checkpoints), keep=self._keep)
        self._journal.begin_segment(committed, keep_from=keep_from)
        if directory.mirror is not None:
            directory.mirror.checkpoint(path)
            reach("mirror.checkpointed")
