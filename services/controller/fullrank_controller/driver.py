"""The loop of a run: settle membership, collect, gather a round, update, publish."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from fullrank.audit.proof import Evidence
from fullrank.common.deadlines import limit_s
from fullrank.common.errors import ServiceLost
from fullrank.common.failpoints import reach
from fullrank.config import RunConfig
from fullrank.replay import Sample
from fullrank.rounds.decision import Decoded
from fullrank.rounds.opening import open_round
from fullrank.rounds.round import Round
from fullrank.rpc.clients import ReplayClient
from fullrank.runs.event_log import Committed, Published
from fullrank.runs.journal import Entry, Journal
from fullrank.runs.record import IterationRecord, from_facts, to_facts
from fullrank.training.trainer import Training
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners.broadcast import Broadcast
from fullrank_controller.membership.assignment import Deal
from fullrank_controller.membership.auto_code import planning_of
from fullrank_controller.membership.membership import Membership
from fullrank_controller.persistence.records import record_of
from fullrank_controller.rounds.auditor import Auditing
from fullrank_controller.rounds.collector import Collecting
from fullrank_controller.rounds.round_runner import Gathered, Gathering
from fullrank_controller.run_state import Run
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

MEASURED_ROUNDS = 100
"""The last rounds, which set the deadline."""
PATIENCE = 2.0
"""Median rounds to wait for those who still compute an audited iteration."""


class Driver:
    """Runs the iterations of one run.

    Args:
        config: The resolved configuration.
        run: Shared with the servicer.
        training: Environments, parameters, optimiser.
        replay: Client of the replay service.
        journal: Told of each iteration before it is committed.
        auditing: Checks what was committed.
        publish: Called with each committed iteration's record.
        checkpoint: Called, off the event loop, with the replay head to resume from.
        watchdog: Told what is going on.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        training: Training,
        replay: ReplayClient,
        *,
        journal: Journal,
        auditing: Auditing,
        publish: Callable[[IterationRecord], None],
        checkpoint: Callable[[int], None],
        watchdog: Watchdog,
    ) -> None:
        self._config = config
        self._run = run
        self._training = training
        self._journal = journal
        self._auditing = auditing
        self._publish = publish
        self._checkpoint = checkpoint
        self._watchdog = watchdog
        self._collecting = Collecting(
            config,
            run,
            training,
            replay,
            spare_rows=auditing.spare_rows,
            watchdog=watchdog,
        )
        self._membership = Membership(config, run)
        self._planning = planning_of(config, run, self._membership, training)
        self._round_times: deque[float] = deque(maxlen=MEASURED_ROUNDS)
        self._broadcast: tuple[Deal, Broadcast] | None = None
        self._resume_head = 0
        self._applied = run.committed
        self._committing: asyncio.Task[IterationRecord] | None = None

    async def drive(self, *, head: int, journalled: Sequence[Entry] = ()) -> None:
        """Run from ``run.committed`` to the end.

        Args:
            head: Replay position to go on from; 0 for a new run.
            journalled: Iterations committed after that, whose updates are applied again.

        Raises:
            NotDecodable: By policy, when the received rows do not determine the updates.
            Corrupted: Vectors contradict each other or the digests.
            EnvironmentFailed: The environment raised.
            ServiceLost: The replay service is gone.
            StaleTerm: Another controller has opened the table, or raised the directory's term.
            RolledBack: A committed unit was found wrong; begin again under a later term.
        """
        if self._run.committed < self._run.iterations:
            beginning = [self._restore(head, journalled)]
            if self._run.committed + len(journalled) < self._run.iterations:
                beginning.append(self._membership.assemble())
            await asyncio.gather(*beginning)
            self._run.state = pb.RUN_STATE_RUNNING
        while self._run.committed < self._run.iterations:
            current = await self._membership.settle(deadline_s=self._deadline_s)
            await self._iterate(current)
        await self._audit()
        self._run.state = pb.RUN_STATE_FINISHED
        self._run.message = f"{self._run.committed} iterations committed"
        log.info("finished: %s", self._run.message)

    async def watch(self) -> None:
        """End the streams of learners that have been silent for too long; for ever."""
        settings, clock = self._config.controller, asyncio.get_running_loop().time
        while True:
            with self._watchdog.phase("the event loop"):
                await asyncio.sleep(settings.heartbeat_s)
            for member in self._run.roster.silent(since=clock() - settings.lost_after_s):
                member.expel(ServiceLost(f"nothing was heard for {settings.lost_after_s:.1f} s"))

    @property
    def _deadline_s(self) -> float:
        """From measured times once there are some."""
        settings = self._config.controller
        return limit_s(
            self._round_times,
            factor=settings.deadline_factor,
            least_s=settings.least_deadline_s,
            unmeasured_s=settings.deadline_s,
        )

    async def _restore(self, head: int, journalled: Sequence[Entry]) -> None:
        """Fill replay, then repeat what was committed after the checkpoint."""
        await self._collecting.open(head)
        self._resume_head = self._collecting.head
        for entry in journalled:
            with self._watchdog.phase("repeating"):
                await self._repeat(entry)
        if journalled:
            log.info("repeated iterations=%d committed=%d", len(journalled), self._run.committed)
            await self.save()

    async def _repeat(self, entry: Entry) -> None:
        """Commit an iteration as it was committed before: same transitions, same updates."""
        assert entry.updates is not None
        await self._collecting.collect(entry.iteration)
        if self._looks_ahead:
            self._collecting.begin(entry.iteration + 1)
            await self._collecting.played()
        await asyncio.to_thread(self._training.apply, entry.updates)
        self._resume_head = self._collecting.head
        self._applied = self._run.committed = entry.iteration + 1
        self._publish(from_facts(entry.facts["record"]))
        reach("iteration.repeated")

    @property
    def _looks_ahead(self) -> bool:
        """Whether the next iteration is collected with the current parameters."""
        return bool(self._config.collect.lag) and self._run.committed + 1 < self._run.iterations

    async def _iterate(self, current: Deal) -> None:
        run, clock = self._run, asyncio.get_running_loop().time
        started = clock()
        sent, received = run.roster.bytes_sent(), run.bytes_received.copy()
        collected = await self._collecting.collect(run.committed)
        await self._audit()
        sample = self._collecting.sample(run.committed)
        dispatched = clock()
        opened, gathered, evidence = await self._gather(current, sample)
        describe = partial(
            record_of,
            run,
            current,
            variant=self._training.variant,
            opened=opened,
            collected=collected,
            gathered=gathered,
            collect_s=dispatched - started,
            sent=run.roster.bytes_sent() - sent,
            received=run.bytes_received - received,
        )
        record = await self._update(gathered, describe, evidence, dispatched=dispatched)
        if self._planning is not None:
            await self._planning.note(record, current)

    async def _audit(self) -> None:
        """Before anything is assigned anew: who still computes, and who contradicts whom."""
        times = self._round_times
        patience_s = PATIENCE * median(times) if times else self._deadline_s
        await self._auditing.hear_out(patience_s=patience_s)
        if self._run.ledger.dispute() is not None:
            await self._collecting.played()  # it uses the same kernels
            await self._auditing.settle()

    def _own_up(self, record: IterationRecord, decision: Decoded) -> None:
        self._run.caveats["exact"] = (
            f"iteration {record.iteration} is not exact: its bits depend on who answered, no entry "
            f"is further than {record.error_bound:.1e} from the truth; no digest "
            f"proves its vectors: a wrong one would show if it were of learners "
            f"{list(decision.auditable)}, and be named if it were of {list(decision.nameable)}"
        )
        log.warning("inexact received=%s %s", record.received, self._run.caveats["exact"])

    async def _gather(self, current: Deal, sample: Sample) -> tuple[Round, Gathered, Evidence]:
        """One round; everybody hears of its commit before the update is applied."""
        run = self._run
        run.attempt = 0
        algorithm = self._training.algorithm
        broadcast = await self._broadcast_of(current)
        run.round = opened = open_round(algorithm, run.committed, current.code)
        if self._looks_ahead:
            self._collecting.begin(run.committed + 1)
        gathering = Gathering(
            self._config,
            run,
            self._membership,
            current,
            broadcast,
            sample=sample,
            deadline_s=self._deadline_s,
            watchdog=self._watchdog,
        )
        self._auditing.begin(sample, self._collecting.ahead)
        try:
            gathered = await gathering.run()
            evidence = self._auditing.committed(opened, gathered, sample)
            late = [current.holders[row] for row in current.holders.keys() - opened.rows]
        finally:
            run.round = None
            current.forget_added()
            await self._auditing.end()
        notice = pb.ControllerMessage(commit=pb.Commit(ids=run.ids)).SerializeToString()
        reach("round.decided")
        run.state, run.message = pb.RUN_STATE_RUNNING, ""
        if not self._auditing.due(opened.iteration):
            for member in late:
                member.outbox.commit(notice)
        return opened, gathered, evidence

    async def _broadcast_of(self, current: Deal) -> Broadcast:
        """The deal's encoder, made once an epoch, with the current parameters."""
        if self._broadcast is None or self._broadcast[0] is not current:
            self._broadcast = (current, Broadcast(self._training.algorithm, current.code.matrix))
        await self._encode(self._run.committed)
        return self._broadcast[1]

    async def _encode(self, version: int) -> None:
        """Have this epoch's encoder take the parameters, if it has not and a round will follow."""
        if self._broadcast is None or version == self._run.iterations:
            return
        broadcast = self._broadcast[1]
        if broadcast.version != version:
            await asyncio.to_thread(broadcast.refresh, version)

    async def _update(
        self,
        gathered: Gathered,
        describe: Callable[..., IterationRecord],
        evidence: Evidence,
        *,
        dispatched: float,
    ) -> IterationRecord:
        """Apply the update, whole even if the run is told to stop meanwhile."""
        await self._collecting.played()  # it still acts with the old parameters
        self._committing = asyncio.create_task(
            self._commit(gathered, describe, evidence, dispatched)
        )
        with self._watchdog.phase("updating"):
            return await asyncio.shield(self._committing)

    async def _commit(
        self,
        gathered: Gathered,
        describe: Callable[..., IterationRecord],
        evidence: Evidence,
        dispatched: float,
    ) -> IterationRecord:
        """Apply, journal, publish: what is published survives any crash.

        The next transitions are collected, and the new parameters encoded, while the disk takes
        this iteration.
        """
        run, updates = self._run, gathered.decision.updates
        await asyncio.to_thread(self._training.apply, updates)
        self._applied = run.committed + 1
        reach("update.applied")
        round_s = asyncio.get_running_loop().time() - dispatched
        record = describe(round_s=round_s)
        if not record.exact and record.variance is None:
            self._own_up(record, gathered.decision)
        stored = asyncio.create_task(self._store(record, gathered.decision, evidence))
        checkpoint_due = self._applied % self._config.checkpoint.every == 0
        if self._applied < run.iterations and not checkpoint_due:
            self._collecting.begin(self._applied)
        await asyncio.gather(stored, self._encode(self._applied))
        self._resume_head = self._collecting.head
        run.committed = self._applied
        if not record.attempt:  # one that waited for its deadline would put off the next one
            self._round_times.append(round_s)
        self._publish(record)
        run.event_log.append(Published(term=run.term, iteration=record.iteration))
        reach("iteration.published")
        if checkpoint_due or run.committed == run.iterations:
            await self.save()
        return record

    async def _store(self, record: IterationRecord, decision: Decoded, evidence: Evidence) -> None:
        """Into the journal, and the history."""
        run, updates = self._run, decision.updates
        await asyncio.to_thread(
            self._journal.append,
            record.iteration,
            facts={"record": to_facts(record), **evidence.to_facts()},
            updates=updates,
            reproducible=record.exact,
        )
        run.event_log.append(
            Committed(
                term=run.term,
                epoch=record.epoch,
                iteration=record.iteration,
                rows=decision.rows,
                digest=record.update_digest,
                exact=record.exact,
                culprit=decision.culprit,
            )
        )

    async def save(self) -> None:
        """Checkpoint what is committed, unless an update was applied that the disk did not take."""
        if self._applied == self._run.committed:
            with self._watchdog.phase("writing a checkpoint"):
                await asyncio.to_thread(self._checkpoint, self._resume_head)

    async def settled(self) -> None:
        """After a cancelled ``drive``: return when nothing is half applied or half collected."""
        if self._committing is not None:
            await asyncio.wait({self._committing})
        await self._collecting.played()
