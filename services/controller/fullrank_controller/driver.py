"""The driver of a run: restores it, runs its iterations, and has each one made durable."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from fullrank.common.errors import ConfigError, ServiceLost, Unsound
from fullrank.common.failpoints import reach
from fullrank.common.place import PLACE
from fullrank.environments import variant_of
from fullrank.host.process import QuickCalls
from fullrank.replay.samplers import Sample
from fullrank.run.machine import Program, RunMachine
from fullrank.run.orders import (
    Amend,
    Apply,
    Assemble,
    Audit,
    Collect,
    Compute,
    Draw,
    Drawn,
    Durable,
    Finish,
    Hurry,
    MakeDurable,
    Open,
    Play,
    Save,
    Settle,
    TakeCheckpoint,
)
from fullrank.runs.record import IterationRecord
from fullrank.training.rollouts import Collected
from fullrank_controller.commits import Commits, SaturationLog
from fullrank_controller.host import Host
from fullrank_controller.persistence.restore import StoredIteration
from fullrank_controller.persistence.store import Applied, record_of
from fullrank_controller.rounds.port import DecidedRound, Rounds
from fullrank_controller.rounds.replay_pipeline import ReplayPipeline
from fullrank_controller.term import Term
from fullrank_controller.watchdog import WRITING

log = logging.getLogger(__name__)

FAR = 2**31
"""Iterations ahead of a store, which waits by time."""


class Driver:
    """Executes the orders of one run: each iteration runs while the disk takes the one before.

    Args:
        term: The open parts of the term.
        pipeline: Plays and samples transitions.
        rounds: Computes updates.

    Attributes:
        pipeline: As given.
        rounds: As given.
    """

    def __init__(self, term: Term, pipeline: ReplayPipeline, rounds: Rounds) -> None:
        self.pipeline, self.rounds = pipeline, rounds
        config, training = term.config, term.training
        self._config, self._run, self._training = config, term.run, training
        self._variant = variant_of(config.environment.name, config.environment.params)
        self._saturation = SaturationLog(term)
        self._store, self._watchdog = term.store, term.watchdog
        self._agent_updates = len(training.collector.agents) * training.problem.data.batch_size
        self._host: Host | None = None
        self._machine: RunMachine | None = None
        self._saved: asyncio.Future[int] | None = None
        """Iterations in the checkpoint that is asked for."""
        self._journalled: Mapping[int, StoredIteration] = {}
        self._head = self._resumes_at = self._known = 0
        self._began_at = self._updated_at = 0.0
        self._steps, self._opened = QuickCalls(), asyncio.Event()
        self._sample: Sample | None = None
        self._collected: Collected | None = None
        self._decided: DecidedRound | None = None
        self._record: IterationRecord | None = None
        self._commits = Commits(term, pipeline)

    async def drive(
        self, *, head: int, journalled: Sequence[StoredIteration] = (), known: int = 0
    ) -> None:
        """Run all iterations that are not committed yet.

        Args:
            head: Replay position to resume from; 0 for a new run.
            journalled: Iterations committed after that, whose updates are applied again.
            known: Iterations that earlier terms have committed; some may be computed again.

        Raises:
            NotDecodable: By policy, when the received rows do not determine the updates.
            Corrupted: Vectors contradict each other or the digests.
            EnvironmentFailed: The environment raised.
            ServiceLost: The replay service is gone.
            StaleTerm: Another controller has opened the table, or raised the directory's term.
            Unsound: A row, an update, a parameter or a moment is not finite.
            Condemned: A committed unit was wrong; begin again under a later term.
        """
        committed = self._run.progress.committed
        self._head, self._resumes_at, self._known = head, committed + len(journalled), known
        self._journalled = {stored.record.iteration: stored for stored in journalled}
        program = Program(
            iterations=self._run.progress.iterations,
            updates=self._training.trainer.updates,
            lag=self._config.collect.lag,
            ahead=FAR if self._store.lag_s else self._training.trainer.updates,
            checkpoint_every=self._config.checkpoint.every,
        )
        machine = RunMachine(program, applied=committed, known=self._resumes_at)
        self._machine = machine
        self._host = Host(
            machine,
            {
                Open: self._open,
                Assemble: self._assemble,
                Play: self._play,
                Collect: self._collect,
                Settle: self._settle,
                Draw: self._draw,
                Audit: self._audit,
                Compute: self._compute,
                Apply: self._apply,
                MakeDurable: self._make_durable,
                Hurry: self._hurry,
                TakeCheckpoint: self._checkpoint,
                Finish: self._finish,
            },
        )
        self._updated_at = asyncio.get_running_loop().time()
        await self._host.drive()

    async def checkpoint(self) -> int:
        """Save the state at the next border of collections; returns the iterations in it.

        Raises:
            ServiceLost: The run does not go on.
        """
        machine, host = self._under_way()
        if machine.saved == machine.applied:
            return machine.saved
        if self._saved is None:
            self._saved = asyncio.get_running_loop().create_future()
            host.tell(Save())
        return await asyncio.shield(self._saved)

    def set_iterations(self, iterations: int, *, keep: Callable[[], None]) -> None:
        """Change the number of iterations of the run.

        Args:
            iterations: The number.
            keep: Writes it down; if that raises, the run keeps its length.

        Raises:
            ConfigError: More are begun, the last collection has more updates, or the run is so near
                its end that a longer one would have other bits.
            ServiceLost: The run does not go on.
        """
        machine, host = self._under_way()
        updates, least = machine.program.updates, max(machine.least, self._known)
        if not least <= iterations < 2**63 or iterations % updates:
            several = f", and a multiple of {updates}" if updates > 1 else ""
            raise ConfigError(f"iterations = {iterations}: must be at least {least}{several}")
        if iterations > machine.program.iterations and not machine.extensible:
            raise ConfigError(
                f"iterations = {iterations}: the last collections of the run have begun; resume it "
                "with more once it has finished"
            )
        keep()  # not in a thread: meanwhile the run could begin more
        self._run.progress.iterations = iterations
        host.tell(Amend(iterations))

    def _under_way(self) -> tuple[RunMachine, Host]:
        if self._machine is None or self._host is None or self._machine.finished:
            raise ServiceLost("the run is not under way; ask again, or `fullrank run resume` it")
        return self._machine, self._host

    async def close(self, *, void: bool) -> None:
        """After ``drive``, make durable what is applied, and end playing.

        Args:
            void: True if the state must not be checkpointed.
        """
        try:
            if self._host is not None:
                await self._host.close(void=void)
            await self._store.close()
        finally:
            if self._saved is not None:
                self._saved.set_exception(ServiceLost("the run has ended before a checkpoint"))
            await self.pipeline.end()

    async def _open(self, order: Open) -> None:
        await self.pipeline.open(self._head, resumes_at=self._resumes_at)
        self._commits.head = self.pipeline.head
        self._opened.set()

    async def _assemble(self, order: Assemble) -> None:
        await self.rounds.assemble(resumed=self._resumes_at > 0)
        await self._opened.wait()
        self._run.progress.run()  # whoever has to wait from now on says so

    async def _play(self, order: Play) -> None:
        await self.pipeline.play(order.collection)

    async def _collect(self, order: Collect) -> None:
        first = order.collection * self._training.trainer.updates
        if (stored := self._journalled.get(first)) is not None:
            statistics = stored.record.statistics
            again = await self.pipeline.collect_again(order.collection, statistics)
            self._collected = again and again.without_episodes
            return
        sample = self.pipeline.foresee(order.collection)
        if sample is not None and self._host is not None:
            self._sample = sample
            self._host.tell(Drawn(sample.iteration))
        self._collected = await self.pipeline.collect(order.collection)

    async def _settle(self, order: Settle) -> None:
        """Take the last iteration into account, then encode parameters and assign rows."""
        await self._commits.within_lag()
        PLACE["iteration"] = order.iteration
        if self._record is not None:
            await self.rounds.observe(self._record)
        await self.rounds.settle(order.iteration)
        self._began_at = asyncio.get_running_loop().time()

    def _draw(self, order: Draw) -> None:
        self._sample = self.pipeline.sample(order.iteration)

    async def _audit(self, order: Audit) -> None:
        await self.rounds.audit(self._commits.settled)

    async def _compute(self, order: Compute) -> None:
        assert self._sample is not None  # drawn
        self._decided = await self.rounds.compute(self._sample)

    async def _apply(self, order: Apply) -> None:
        stored = self._journalled.get(order.iteration)
        if stored is not None:
            await self._apply_again(stored)
            return
        decided, collected = self._decided, self._collected
        assert decided is not None  # computed
        assert collected is not None  # collected
        committing = decided.timeline.part("commit")
        with self._watchdog.phase("updating"):
            step = partial(self._step, decided, asyncio.get_running_loop().time)
            statistics, now = await self._steps.call(step)
        self._collected = collected.without_episodes
        self._saturation.note(order.iteration, statistics)
        self._run.progress.applied += 1
        reach("update.applied")
        self._record = record_of(
            decided,
            collected,
            variant=self._variant,
            collect_s=decided.dispatched_at - self._began_at,
            round_s=now - decided.dispatched_at,
            iteration_s=now - self._updated_at,
            agent_updates=self._agent_updates,
            env_steps=collected.steps / self._training.trainer.updates,
            statistics=statistics,
        )
        self._updated_at = now
        self._commits.add(
            Applied(
                record=self._record,
                round=decided,
                blocks=collected.blocks,
                head=self.pipeline.head,
                span=committing,
                at=now,
            )
        )

    async def _apply_again(self, stored: StoredIteration) -> None:
        """Commit an iteration again, with the same transitions and the same updates."""
        iteration, statistics = stored.record.iteration, stored.record.statistics
        with self._watchdog.phase("repeating"):
            apply = partial(self._training.trainer.apply, stored.updates, iteration=iteration)
            await asyncio.to_thread(apply)
        self._saturation.note(iteration, statistics)
        self._commits.head = self.pipeline.head
        self._run.progress.applied = self._run.progress.committed = iteration + 1
        self._store.publish_again(stored.record)
        reach("iteration.repeated")
        if iteration + 1 == self._resumes_at:
            log.info("repeated iterations=%d", len(self._journalled))

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

    async def _make_durable(self, order: MakeDurable) -> None:
        durable = await self._commits.write()
        assert self._host is not None  # it gave the order
        self._host.tell(Durable(durable))

    def _hurry(self, order: Hurry) -> None:
        self._commits.hurry()

    async def _checkpoint(self, order: TakeCheckpoint) -> None:
        await self.pipeline.finish_playing()  # a run that is stopped may still play
        with self._watchdog.phase(WRITING["checkpoint"]):
            await self._store.checkpoint(committed=order.iterations, head=self._commits.head)
        if self._saved is not None:
            self._saved.set_result(order.iterations)
            self._saved = None

    async def _finish(self, order: Finish) -> None:
        await self._store.uploaded()
        self._run.progress.finish()
        log.info("finished: %s", self._run.progress.message)
