"""Rounds in this process: one learner holds every row, and none is lost."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial

from fullrank.algorithms.problem import DataMode
from fullrank.audit.ledger import CONTROLLER
from fullrank.audit.proof import Evidence
from fullrank.common.errors import ConfigError
from fullrank.common.failpoints import reach
from fullrank.config import RunConfig
from fullrank.planning.candidates import Plan
from fullrank.replay.samplers import Sample
from fullrank.rounds.decoding import open_round
from fullrank.run.assignment import RowAssignment
from fullrank.run.placement import Placement
from fullrank.run.round import OpenRound
from fullrank.runs.events import Assigned, Joined
from fullrank.runs.record import IterationRecord
from fullrank.wiring.training import Training
from fullrank_controller.local.computation import LEARNER, Computation, ComputedRound
from fullrank_controller.membership.member import Member, Numerics
from fullrank_controller.persistence.run_numerics import own_numerics
from fullrank_controller.rounds.port import Cancellation, DecidedRound, Pipeline
from fullrank_controller.rounds.timeline import Timeline
from fullrank_controller.run import Run
from fullrank_controller.watchdog import Watchdog


class LocalRounds:
    """Computes each round on a thread of this process, which holds all rows of the code.

    Args:
        config: The resolved configuration.
        run: Parts shared with the observers' ports.
        training: Its problem is the run's.
        computation: Computes decisions.
        pipeline: Plays before each computation, or beside it where they share nothing.
        watchdog: Observes computing.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        training: Training,
        computation: Computation,
        *,
        pipeline: Pipeline,
        watchdog: Watchdog,
    ) -> None:
        self._config, self._run, self._training = config, run, training
        self._computation, self._pipeline, self._watchdog = computation, pipeline, watchdog
        self._member: Member | None = None
        self._cancellation = Cancellation("the run is told to stop")

    @property
    def plan(self) -> Plan | None:
        """None: without late learners no plan is needed."""
        return None

    async def assemble(self, *, resumed: bool) -> None:
        """Return: this process is the only learner."""

    async def settle(self, iteration: int) -> None:
        """Join as a learner and take every row, before the first round."""
        rows = self._computation.rows
        if self._member is None:
            self._member = self._join()
            self._run.membership.begin_epoch(
                RowAssignment(
                    epoch=0,
                    requested=self._config.code,
                    code=self._computation.code,
                    holders=dict.fromkeys(rows, self._member),
                    members=1,
                    placement=Placement(holders=(0,) * len(rows), shared=0, changed=0),
                )
            )

    def _join(self) -> Member:
        run, host = self._run, socket.gethostname()
        domain = tuple((self._config.learner.domain or host).split("/"))
        now, committed = asyncio.get_running_loop().time(), run.progress.committed
        member = run.roster.join(host, now=now, domain=domain, since=committed)
        run.event_log.append(Joined(term=run.identity.term, learner=member.learner))
        run.roster.ready(member, numerics=self._numerics(), stable=True)
        return member

    def _numerics(self) -> Numerics:
        """The numerics of the run, which are this process's.

        Raises:
            ConfigError: The run was begun with others.
        """
        numerics, own = self._run.roster.numerics, own_numerics(self._config, self._training)
        if numerics is not None and numerics.identity != own.identity:
            raise ConfigError(
                f"the run has numeric fingerprint {numerics.identity}, this process has "
                f"{own.identity} ({own.fingerprint}): resume it on such a machine with the version "
                f"that began it, or set audit.fingerprint={own.identity} to go on with other bits"
            )
        return numerics or own

    async def observe(self, record: IterationRecord) -> None:
        """Return: no deadline follows from the times of rounds without waiting."""

    async def audit(self, durable: Callable[[], Awaitable[None]]) -> None:
        """Return: no other process reports these units."""

    async def compute(self, sample: Sample) -> DecidedRound:
        """Compute the updates of a sample, after playing ahead.

        Raises:
            NotDecodable: All rows of the code do not determine the updates.
        """
        opened, clock = self._open(sample), asyncio.get_running_loop().time
        try:
            if self._config.collect.lag:
                await self._pipeline.finish_playing()
            began_at = clock()
            with self._watchdog.phase("computing"):
                computed = await self._in_thread(sample)
            emulated_s = self._config.compute.emulate_unit_s * self._computation.load
            await asyncio.sleep(max(0.0, emulated_s - (clock() - began_at)))
        finally:
            self._run.reception.close()
        reach("round.decided")
        timeline = _timeline(opened, computed, began_s=began_at - opened.began_at)
        if self._member is not None:
            self._member.heard_at = clock()
        return DecidedRound(
            ids=self._run.identity.ids(opened),
            code=self._computation.code,
            decision=computed.decision,
            evidence=_evidence(sample, computed, self._training.problem.data),
            timeline=timeline,
            dispatched_at=opened.began_at,
            received=(LEARNER,),
            condition=computed.condition,
        )

    def _open(self, sample: Sample) -> OpenRound[Member]:
        """Open the reception, for the status alone, and record that all rows are assigned."""
        run, code = self._run, self._computation.code
        assignment = run.membership.assignment
        assert assignment is not None  # settled
        round_ = open_round(self._training.problem, sample.iteration, code, seed=self._config.seed)
        now = asyncio.get_running_loop().time()
        opened = OpenRound(round_, assignment, members=run.roster, began_at=now)
        run.reception.open(opened)
        ids = run.identity.ids(opened)
        run.event_log.append(
            Assigned(
                term=ids.term,
                epoch=ids.epoch,
                iteration=ids.iteration,
                attempt=ids.attempt,
                rows=tuple((row, LEARNER) for row in self._computation.rows),
            )
        )
        return opened

    async def _in_thread(self, sample: Sample) -> ComputedRound:
        """Compute on a thread; once cancelled, return when the thread has stopped."""
        compute = partial(self._computation.compute, sample, self._cancellation.check)
        computing = asyncio.create_task(asyncio.to_thread(compute))
        try:
            return await asyncio.shield(computing)
        except asyncio.CancelledError:
            self._cancellation.ask()
            await asyncio.wait({computing})
            computing.exception()  # retrieved
            raise


def _evidence(sample: Sample, computed: ComputedRound, data: DataMode) -> Evidence:
    """The journal's evidence: the controller has computed every unit itself."""
    reports = computed.decision.reports
    vouched = {CONTROLLER: range(len(reports))} if data.exact else {}
    return Evidence(sample=sample, digests=reports, reports=vouched)


def _timeline(opened: OpenRound[Member], computed: ComputedRound, *, began_s: float) -> Timeline:
    """The times of a round whose only learner sends nothing; emulated time is computing time."""
    timeline = Timeline(began_at=opened.began_at)
    timeline.rows[LEARNER], timeline.assigned_s[LEARNER] = 0, began_s
    started_s, done_s = began_s + computed.gather_s, timeline.elapsed_s()
    timeline.started_s[LEARNER], timeline.compute_s[LEARNER] = started_s, done_s - started_s
    timeline.sent_s[LEARNER] = timeline.arrival_s[LEARNER] = timeline.decodable_s = done_s
    return timeline
