"""The driver of a run: restores it, runs its iterations, and makes each one durable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fullrank.common.errors import Unsound
from fullrank.common.failpoints import reach
from fullrank.config.tree import RunConfig
from fullrank.environments import variant_of
from fullrank.replay.samplers import Sample
from fullrank.rounds.decision import Decoded
from fullrank.rpc.tasks import QuickCalls
from fullrank.runs.record import IterationRecord
from fullrank.training.loop import CollectAhead, IterationLoop
from fullrank.training.rollouts import Collected
from fullrank.wiring import Training
from fullrank_controller.persistence.records import DecidedIteration
from fullrank_controller.persistence.restore import StoredIteration
from fullrank_controller.persistence.store import RunStore
from fullrank_controller.rounds.port import DecidedRound, Pipeline, Rounds
from fullrank_controller.run import Run
from fullrank_controller.saturation import SaturationLog
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)


class PendingWrite:
    """The one write that is under way, while the next iteration runs."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def begin(self, write: Coroutine[Any, Any, None]) -> None:
        """Begin to write; the write before has ended."""
        self._task = asyncio.create_task(write)

    async def ended(self) -> None:
        """Return once no write is in progress; raises if the last one failed."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def settled(self) -> None:
        """Return once no write is in progress, even if the last one failed."""
        if self._task is not None:
            await asyncio.wait({self._task})
            self._task.exception()  # ended has raised it

    async def beside(self, iteration: Awaitable[None]) -> None:
        """Run an iteration; raises at once if the write before fails."""
        running = asyncio.ensure_future(iteration)
        writing = {self._task} if self._task is not None else set()
        try:
            done, _ = await asyncio.wait({running, *writing}, return_when=asyncio.FIRST_COMPLETED)
            for write in done & writing:
                await write
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


class Driver:
    """Runs the iterations of one run, each while the disk takes the one before (ADR 45).

    Args:
        config: The resolved configuration.
        run: Parts shared with the servicers.
        training: Parameters and optimiser.
        pipeline: Plays and samples transitions.
        rounds: Computes updates.
        store: Makes iterations durable and publishes them.
        saturation: Takes the statistics of each update.
        watchdog: Observes each phase.

    Attributes:
        pipeline: As given.
        rounds: As given.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        training: Training,
        *,
        pipeline: Pipeline,
        rounds: Rounds,
        store: RunStore,
        saturation: SaturationLog,
        watchdog: Watchdog,
    ) -> None:
        self.pipeline, self.rounds = pipeline, rounds
        self._config, self._run, self._training = config, run, training
        self._variant = variant_of(config.environment.name, config.environment.params)
        self._store, self._saturation, self._watchdog = store, saturation, watchdog
        self._loop = IterationLoop(
            pipeline,
            compute=self._compute,
            commit=self._commit,
            lag=config.collect.lag,
            iterations=run.identity.iterations,
        )
        self._agent_updates = len(training.collector.agents) * training.problem.data.batch_size
        self._resume_head = 0
        self._began_at = self._updated_at = 0.0
        self._committing: asyncio.Task[IterationRecord] | None = None
        self._steps = QuickCalls()
        self._storing = PendingWrite()
        """Makes the newest applied iteration durable, then publishes it."""

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
            Unsound: A row, an update, a parameter or a moment is not finite.
            RolledBack: A committed unit was wrong; begin again under a later term.
        """
        progress, iterations = self._run.progress, self._run.identity.iterations
        if progress.committed < iterations:
            starting = [self._restore(head, journalled)]
            resumes_at = progress.committed + len(journalled)
            if resumes_at < iterations:
                starting.append(self.rounds.assemble(resumed=resumes_at > 0))
            await asyncio.gather(*starting)
            progress.run()
        self._updated_at = asyncio.get_running_loop().time()
        while progress.applied < iterations:
            await self._storing.beside(self._iterate())
        await self.rounds.audit(self._storing.ended)
        progress.finish()
        log.info("finished: %s", progress.message)

    async def _restore(self, head: int, journalled: Sequence[StoredIteration]) -> None:
        """Fill replay, then repeat the iterations committed after the checkpoint."""
        await self.pipeline.open(head, resumes_at=self._run.progress.committed + len(journalled))
        self._resume_head = self.pipeline.head
        for stored in journalled:
            with self._watchdog.phase("repeating"):
                await self._repeat(stored)
        if journalled:
            committed = self._run.progress.committed
            log.info("repeated iterations=%d committed=%d", len(journalled), committed)
            await self.save()

    async def _repeat(self, stored: StoredIteration) -> None:
        """Commit an iteration again, with the same transitions and the same updates."""
        iteration = stored.record.iteration
        apply = partial(self._training.trainer.apply, stored.updates, iteration=iteration)
        free = self._training.collector.free
        if free is not None:  # its episodes are in the table
            await asyncio.to_thread(apply)
            free.repeated(iteration, stored.record.statistics)
        else:
            await self._loop.repeat(iteration, lambda: asyncio.to_thread(apply))
        self._saturation.note(iteration, stored.record.statistics)
        self._resume_head = self.pipeline.head
        self._run.progress.applied = self._run.progress.committed = iteration + 1
        self._store.publish_again(stored.record)
        reach("iteration.repeated")

    async def _iterate(self) -> None:
        """Run one iteration, from its collection to its publication."""
        await self.rounds.settle()
        self._began_at = asyncio.get_running_loop().time()
        record = await self._loop.iterate(self._run.progress.applied)
        await self.rounds.observe(record)

    async def _compute(self, sample: Sample, collect_ahead: CollectAhead) -> DecidedRound:
        """Audit the round before, then compute the updates of a sample."""
        await self.rounds.audit(self._storing.ended)
        return await self.rounds.compute(sample, collect_ahead)

    async def _commit(self, collected: Collected, decided: DecidedRound) -> IterationRecord:
        """Apply and begin to store; this runs to its end even if the run is told to stop."""
        iteration = DecidedIteration(
            round=decided,
            collected=collected,
            variant=self._variant,
            collect_s=decided.dispatched_at - self._began_at,
            agent_updates=self._agent_updates,
        )
        with self._watchdog.phase("updating"):
            step = partial(self._step, decided, asyncio.get_running_loop().time)
            self._committing = asyncio.create_task(self._apply(iteration, self._steps.call(step)))
            return await asyncio.shield(self._committing)

    def _step(
        self, decided: DecidedRound, clock: Callable[[], float]
    ) -> tuple[Mapping[str, float], float]:
        """Apply updates; returns the statistics of the step and the time at which it ended."""
        updates, trainer = decided.decision.updates, self._training.trainer
        try:
            return trainer.apply(updates, iteration=decided.ids.iteration), clock()
        except Unsound as error:
            learners = sorted(decided.received)
            raise Unsound(f"{error}; the rows came from learners {learners}") from error

    async def _apply(
        self,
        decided: DecidedIteration,
        stepping: "asyncio.Future[tuple[Mapping[str, float], float]]",
    ) -> IterationRecord:
        """Apply; the next iteration runs while the disk takes this one.

        It waits where both would touch the disk: for the iteration before, and for a checkpoint.
        """
        progress = self._run.progress
        statistics, now = await stepping
        self._saturation.note(decided.round.ids.iteration, statistics)
        progress.applied += 1
        reach("update.applied")
        round_s = now - decided.round.dispatched_at
        iteration_s, self._updated_at = now - self._updated_at, now
        record = decided.record(round_s=round_s, iteration_s=iteration_s, statistics=statistics)
        await self._storing.ended()
        self._storing.begin(self._make_durable(record, decided, head=self.pipeline.head))
        last = progress.applied == self._run.identity.iterations
        checkpoint_due = progress.applied % self._config.checkpoint.every == 0
        if not last and not checkpoint_due:
            self.pipeline.begin(progress.applied)
        if not last:
            await self.rounds.refresh(progress.applied)
        if checkpoint_due or last:
            await self._storing.ended()
            await self.save()
        return record

    async def _make_durable(
        self, record: IterationRecord, decided: DecidedIteration, *, head: int
    ) -> None:
        """Store an iteration, then publish it: a published iteration survives any crash.

        Args:
            record: Its record.
            decided: The iteration.
            head: Replay position to resume from after it.
        """
        decision = decided.round.decision
        with self._watchdog.phase("writing"):
            record = replace(record, caveats=self._run.progress.lasting)
            await self._store.append(record, decided)
        if not record.exact and record.variance is None:
            self._record_inexact(record, decision)
        self._resume_head = head
        self._run.progress.committed = record.iteration + 1
        self.pipeline.committed(record.iteration + 1)
        self._store.publish(record)

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

    async def save(self) -> None:
        """Checkpoint the committed iterations, unless an update is applied but not stored."""
        committed = self._run.progress.committed
        if self._run.progress.applied == committed:
            with self._watchdog.phase("writing a checkpoint"):
                await self._store.checkpoint(committed=committed, head=self._resume_head)

    async def settled(self) -> None:
        """After ``drive``, return when no update, write or collection is under way."""
        if self._committing is not None:
            await asyncio.wait({self._committing})
            self._committing.exception()  # drive has raised it
        await self._storing.settled()
        await self.pipeline.end()
