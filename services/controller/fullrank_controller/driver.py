"""The loop of a run: collect, sample, run a round, audit, commit, publish."""

import asyncio
import logging
from collections.abc import Sequence

from fullrank.audit.proof import Evidence
from fullrank.common.failpoints import reach
from fullrank.config import RunConfig
from fullrank.environments import variant_of
from fullrank.replay import Sample
from fullrank.rounds.decision import Decoded
from fullrank.rounds.opening import open_round
from fullrank.runs.record import IterationRecord
from fullrank.v1 import controller_pb2 as pb
from fullrank.wiring import Training
from fullrank_controller.learners.broadcast import Broadcaster
from fullrank_controller.membership.assignment import Assignment
from fullrank_controller.membership.auto_code import AutoCode
from fullrank_controller.persistence.records import DecidedIteration
from fullrank_controller.persistence.restore import StoredIteration
from fullrank_controller.persistence.store import RunStore
from fullrank_controller.rounds.auditor import Auditor
from fullrank_controller.rounds.collector import Collector
from fullrank_controller.rounds.round_runner import RoundResult, RoundRunner
from fullrank_controller.rounds.round_times import RoundTimes
from fullrank_controller.run import Run
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)


class Driver:
    """Runs the iterations of one run.

    Args:
        config: The resolved configuration.
        run: Parts shared with the servicers.
        training: Parameters and optimiser.
        collector: Plays and samples transitions.
        auditor: Checks committed units.
        auto_code: Requests codes; None unless the code is ``auto``.
        store: Makes iterations durable and publishes them.
        watchdog: Observes each phase.

    Attributes:
        collector: As given.
        auto_code: As given.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        training: Training,
        *,
        collector: Collector,
        auditor: Auditor,
        auto_code: AutoCode | None,
        store: RunStore,
        watchdog: Watchdog,
    ) -> None:
        self.collector, self.auto_code = collector, auto_code
        self._config, self._run, self._training = config, run, training
        self._variant = variant_of(config.environment.name, config.environment.params)
        self._auditor, self._store, self._watchdog = auditor, store, watchdog
        self._broadcaster = Broadcaster(training.algorithm)
        self._round_times = RoundTimes(config.controller)
        self._resume_head = 0
        self._applied = run.status.committed
        self._committing: asyncio.Task[IterationRecord] | None = None

    async def drive(self, *, head: int, journalled: Sequence[StoredIteration] = ()) -> None:
        """Run all iterations that are not committed yet.

        Args:
            head: Replay position to resume from; 0 for a new run.
            journalled: Iterations committed after that, whose updates are applied again.

        Raises:
            NotDecodable: By policy, when the received rows do not determine the updates.
            Corrupted: Vectors contradict each other or the digests.
            EnvironmentFailed: The environment raised.
            ServiceLost: The replay service is gone.
            StaleTerm: Another controller has opened the table, or raised the directory's term.
            RolledBack: A committed unit was wrong; begin again under a later term.
        """
        status, iterations = self._run.status, self._run.identity.iterations
        if status.committed < iterations:
            starting = [self._restore(head, journalled)]
            if status.committed + len(journalled) < iterations:
                starting.append(self._run.membership.assemble())
            await asyncio.gather(*starting)
            status.run()
        while status.committed < iterations:
            deadline_s = self._round_times.deadline_s
            await self._iterate(await self._run.membership.settle(deadline_s=deadline_s))
        await self._audit()
        status.finish()
        log.info("finished: %s", status.message)

    async def _restore(self, head: int, journalled: Sequence[StoredIteration]) -> None:
        """Fill replay, then repeat the iterations committed after the checkpoint."""
        await self.collector.open(head)
        self._resume_head = self.collector.head
        for stored in journalled:
            with self._watchdog.phase("repeating"):
                await self._repeat(stored)
        if journalled:
            committed = self._run.status.committed
            log.info("repeated iterations=%d committed=%d", len(journalled), committed)
            await self.save()

    async def _repeat(self, stored: StoredIteration) -> None:
        """Commit an iteration again, with the same transitions and the same updates."""
        iteration = stored.record.iteration
        await self.collector.collect(iteration)
        if self._collects_ahead:
            self.collector.begin(iteration + 1)
            await self.collector.finish_playing()
        await asyncio.to_thread(self._training.trainer.apply, stored.updates)
        self._resume_head = self.collector.head
        self._applied = self._run.status.committed = iteration + 1
        self._store.publish_again(stored.record)
        reach("iteration.repeated")

    @property
    def _collects_ahead(self) -> bool:
        """True if the next iteration is collected with the current parameters."""
        following = self._run.status.committed + 1
        return bool(self._config.collect.lag) and following < self._run.identity.iterations

    async def _iterate(self, assignment: Assignment) -> None:
        """Run one iteration, from its collection to its publication."""
        run, clock = self._run, asyncio.get_running_loop().time
        started = clock()
        sent, received = run.roster.bytes_sent(), run.reception.bytes_received.copy()
        collected = await self.collector.collect(run.status.committed)
        await self._audit()
        sample = self.collector.sample(run.status.committed)
        dispatched = clock()
        result, evidence = await self._run_round(assignment, sample)
        decided = DecidedIteration(
            result=result,
            collected=collected,
            evidence=evidence,
            variant=self._variant,
            collect_s=dispatched - started,
            dispatched_at=dispatched,
            bytes_sent=run.roster.bytes_sent() - sent,
            bytes_received=run.reception.bytes_received - received,
        )
        await self.collector.finish_playing()  # it still acts with the old parameters
        self._committing = asyncio.create_task(self._commit(decided))
        with self._watchdog.phase("updating"):
            record = await asyncio.shield(self._committing)
        if self.auto_code is not None:
            await self.auto_code.observe(record, assignment)

    async def _audit(self) -> None:
        """Await late reports and settle disputes, before anything is assigned anew."""
        await self._auditor.await_late_reports(patience_s=self._round_times.patience_s)
        if self._auditor.disputed:
            await self.collector.finish_playing()  # it uses the same kernels
            await self._auditor.settle()

    async def _run_round(
        self, assignment: Assignment, sample: Sample
    ) -> tuple[RoundResult, Evidence]:
        """Run one round; learners hear of its commit before the update is applied."""
        run, iteration = self._run, sample.iteration
        encoder = await self._broadcaster.encoder(assignment, version=iteration)
        round_ = open_round(
            self._training.problem, iteration, assignment.code, seed=self._config.seed
        )
        opened = run.reception.open(assignment, round_, now=asyncio.get_running_loop().time())
        if self._collects_ahead:
            self.collector.begin(iteration + 1)
        runner = RoundRunner(
            self._config.controller,
            run,
            opened,
            encoder,
            sample,
            deadline_s=self._round_times.deadline_s,
            watchdog=self._watchdog,
        )
        self._auditor.begin(sample, self.collector.ahead)
        try:
            result = await runner.run()
            evidence = self._auditor.committed(result, sample)
            unanswered = opened.unanswered()
        finally:
            run.reception.close()
            await self._auditor.end()
        reach("round.decided")
        run.status.run()
        if not self._auditor.is_due(iteration):
            notice = pb.ControllerMessage(commit=pb.Commit(ids=opened.ids)).SerializeToString()
            for member in unanswered:
                member.outbox.commit(notice)
        return result, evidence

    async def _commit(self, decided: DecidedIteration) -> IterationRecord:
        """Apply, store, publish: a published iteration survives any crash.

        It runs to its end even if the run is told to stop. The next transitions are collected, and
        the new parameters encoded, while the disk takes this iteration.
        """
        run, result = self._run, decided.result
        await asyncio.to_thread(self._training.trainer.apply, result.decision.updates)
        self._applied = run.status.committed + 1
        reach("update.applied")
        round_s = asyncio.get_running_loop().time() - decided.dispatched_at
        record = decided.record(round_s=round_s)
        if not record.exact and record.variance is None:
            self._record_inexact(record, result.decision)
        stored = asyncio.create_task(self._store.append(record, decided))
        last = self._applied == run.identity.iterations
        checkpoint_due = self._applied % self._config.checkpoint.every == 0
        if not last and not checkpoint_due:
            self.collector.begin(self._applied)
        encoded = [] if last else [self._broadcaster.refresh(self._applied)]
        await asyncio.gather(stored, *encoded)
        self._resume_head = self.collector.head
        run.status.committed = self._applied
        if not record.attempt:  # a round that waited for its deadline would put off the next one
            self._round_times.add(round_s)
        self._store.publish(record)
        if checkpoint_due or last:
            await self.save()
        return record

    def _record_inexact(self, record: IterationRecord, decision: Decoded) -> None:
        caveat = (
            f"iteration {record.iteration} is not exact: its bits depend on who answered, no entry "
            f"is further than {record.error_bound:.1e} from the truth; no digest "
            f"proves its vectors: a wrong one would show if it were of learners "
            f"{list(decision.auditable)}, and be named if it were of {list(decision.nameable)}"
        )
        self._run.status.record_caveat("exact", caveat)
        log.warning("inexact received=%s %s", record.received, caveat)

    async def save(self) -> None:
        """Checkpoint the committed iterations, unless an update is applied but not stored."""
        committed = self._run.status.committed
        if self._applied == committed:
            with self._watchdog.phase("writing a checkpoint"):
                await self._store.checkpoint(committed=committed, head=self._resume_head)

    async def settled(self) -> None:
        """After a cancelled ``drive``, return when no update or collection is under way."""
        if self._committing is not None:
            await asyncio.wait({self._committing})
        await self.collector.finish_playing()
