"""Rounds by learners over the network, and the code that the planner requests between them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from fullrank.audit.proof import Evidence
from fullrank.codes.targets import each_unit
from fullrank.common.errors import CodeError, NotFound, ServiceLost
from fullrank.common.failpoints import reach
from fullrank.config.auto_code import first_code
from fullrank.config.tree import PluginSettings
from fullrank.net.replay_client import ReplayClient
from fullrank.planning.candidates import Plan
from fullrank.planning.grace import Grace, returns_of
from fullrank.planning.run_planner import RunPlanner
from fullrank.replay.samplers import Sample
from fullrank.rounds.decoding import open_round
from fullrank.run.assignment import RowAssignment
from fullrank.run.policies import RoundPolicies
from fullrank.run.round import OpenRound
from fullrank.runs.record import IterationRecord
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners.broadcast import Broadcaster
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.auditor import Auditor
from fullrank_controller.rounds.disputes import Disputes
from fullrank_controller.rounds.port import DecidedRound
from fullrank_controller.rounds.replay_pipeline import ReplayPipeline
from fullrank_controller.rounds.round_runner import RoundResult, RoundRunner
from fullrank_controller.rounds.timeline import RoundTimes
from fullrank_controller.term import Term

log = logging.getLogger(__name__)


class AutoCode:
    """Feeds committed iterations to the planner and requests the code that it chooses.

    Args:
        term: The open parts of the term, whose code is ``auto``.

    Attributes:
        plan: The last plan; None before the first.
    """

    def __init__(self, term: Term) -> None:
        self.plan: Plan | None = None
        self._roster, self._membership = term.run.roster, term.run.membership
        config, problem = term.config, term.training.problem
        self._planner = RunPlanner(config, problem)
        target = each_unit(len(problem.units)) if problem.target is None else problem.target
        self._membership.requested = first_code(target, rows=config.learners)

    async def observe(self, record: IterationRecord, assignment: RowAssignment[Member]) -> None:
        """Take a committed iteration into account; now and then make a plan."""
        if not self._planner.observe(record, assignment.code):
            return
        learners = [member.learner for member in self._roster.eligible]
        try:
            self.plan = plan = await asyncio.to_thread(self._planner.plan, learners)
        except CodeError as error:
            log.debug("no_plan iteration=%d reason=%s", record.iteration, error)
            return
        chosen = plan.candidate
        self._membership.requested = PluginSettings(name=chosen.name, params=chosen.params)
        log.log(
            logging.INFO if plan.changed else logging.DEBUG,
            "plan iteration=%d code=%s changed=%s reason=%s",
            record.iteration,
            chosen.label,
            plan.changed,
            plan.reason,
        )


class NetworkRounds:
    """Has each round computed by the attached learners, under the assignment of its epoch.

    Args:
        term: The open parts of the term.
        replay: Told of each sample, with the next append.
        pipeline: Plays beside the rounds.
    """

    def __init__(self, term: Term, replay: ReplayClient, pipeline: ReplayPipeline) -> None:
        self._config, self._run, self._training = term.config, term.run, term.training
        self._replay, self._pipeline, self._watchdog = replay, pipeline, term.watchdog
        self._auditor, self._disputes = Auditor(term, replay), Disputes(term, replay)
        config, run = term.config, term.run
        self._auto_code = AutoCode(term) if config.code.name == "auto" else None
        algorithm = term.training.algorithm
        self._broadcaster = Broadcaster(algorithm, roster=run.roster, block=run.block)
        self._round_times = RoundTimes(config.controller)
        self._grace = Grace() if config.controller.undecodable == "hedge" else None
        self._assignment: RowAssignment[Member] | None = None
        self._sent, self._received = Counter[str](), Counter[str]()
        """Bytes before this iteration."""

    @property
    def plan(self) -> Plan | None:
        """The planner's last plan, if the code is ``auto``."""
        return self._auto_code.plan if self._auto_code is not None else None

    async def assemble(self, *, resumed: bool) -> None:
        """Wait for the configured number of learners, up to a deadline, or for enough of them."""
        await self._run.membership.assemble(resumed=resumed)

    async def settle(self, iteration: int) -> None:
        """Encode the current parameters, and assign rows to the learners that are there.

        Raises:
            NotDecodable: By policy, when no code exists for the learners that are there.
        """
        await self._broadcaster.refresh(iteration)
        run, deadline_s = self._run, self._round_times.deadline_s
        self._assignment = await run.membership.settle(deadline_s=deadline_s)
        self._sent, self._received = run.roster.bytes_sent(), run.reception.bytes_received.copy()

    async def observe(self, record: IterationRecord) -> None:
        """Measure round times and, with ``auto``, make plans."""
        if not record.attempt:  # a round that waited for its deadline would put off the next one
            self._round_times.add(record.round_s)
            if self._grace is not None and self._assignment is not None:
                returns, needed = returns_of(record, self._assignment.code)
                self._grace.observe(returns, needed=needed)
        if self._auto_code is not None and self._assignment is not None:
            await self._auto_code.observe(record, self._assignment)

    async def audit(self, durable: Callable[[], Awaitable[None]]) -> None:
        """Await late reports and settle disputes, before anything is assigned anew.

        Args:
            durable: Returns once every applied iteration is stored; disputes read the journal.

        Raises:
            Condemned: A committed unit was wrong.
        """
        await self._auditor.await_late_reports(patience_s=self._round_times.patience_s)
        if self._run.ledger.dispute() is not None:
            await durable()
            await self._pipeline.finish_playing()  # it uses the same kernels
            await self._disputes.settle()

    async def compute(self, sample: Sample) -> DecidedRound:
        """Run one round.

        Raises:
            NotDecodable: By policy, when the received rows do not determine the updates.
            Corrupted: Vectors contradict each other or the digests.
            Unsound: An update is not finite.
        """
        dispatched_at = asyncio.get_running_loop().time()
        result, evidence = await self._run_round(sample)
        opened, run = result.opened, self._run
        result.timeline.span.note(received=list(opened.round.received), late=result.late)
        comparable = self._training.problem.data.exact
        reports = opened.round.reports if comparable else {}
        return DecidedRound(
            ids=run.identity.ids(opened),
            code=opened.assignment.code,
            decision=result.decision,
            evidence=evidence,
            timeline=result.timeline,
            dispatched_at=dispatched_at,
            received=tuple(opened.round.received),
            late=result.late,
            quarantined=run.roster.verdicts.take_quarantined(),
            condition=opened.round.condition,
            hedged=opened.hedged,
            reported={learner: len(digests) for learner, digests in reports.items()},
            bytes_sent=run.roster.bytes_sent() - self._sent,
            bytes_received=run.reception.bytes_received - self._received,
        )

    async def _run_round(self, sample: Sample) -> tuple[RoundResult, Evidence]:
        """Run one round; learners hear of its commit before the update is applied."""
        run = self._run
        runner = await self._open(sample)
        self._replay.drew(sample)
        self._auditor.begin(sample, self._pipeline.ahead)
        try:
            result = await runner.run()
            evidence = self._auditor.committed(result, sample)
            unanswered = result.opened.unanswered()
        finally:
            run.reception.close()
            await self._auditor.recomputation.end()
        reach("round.decided")
        run.progress.run()
        if not self._auditor.is_due(sample.iteration):
            commit = pb.Commit(ids=run.identity.ids(result.opened))
            notice = pb.ControllerMessage(commit=commit).SerializeToString()
            for member in unanswered:
                member.outbox.commit(notice)
        return result, evidence

    async def _open(self, sample: Sample) -> RoundRunner:
        """Open the reception to a round of the sample."""
        assignment, iteration = self._assignment, sample.iteration
        assert assignment is not None  # settled
        encoder = await self._broadcaster.encoder(assignment, version=iteration)
        round_ = open_round(
            self._training.problem, iteration, assignment.code, seed=self._config.seed
        )
        settings, deadline_s = self._config.controller, self._round_times.deadline_s
        opened: OpenRound[Member] = OpenRound(
            round_,
            assignment,
            members=self._run.roster,
            policies=RoundPolicies(
                undecodable="recode" if self._grace is not None else settings.undecodable,
                inexact=settings.inexact,
                deadline_s=deadline_s,
            ),
            quorum=self._auditor.quorum(iteration, assignment.code),
            recomputes=self._auditor.computes_alike,
            began_at=asyncio.get_running_loop().time(),
        )
        self._run.reception.open(opened)
        return RoundRunner(
            self._run,
            opened,
            encoder,
            sample,
            recompute=partial(self._auditor.recompute, opened),
            examine=self._auditor.recomputation.examine,
            stalled=self._look_at_table,
            deadline_s=deadline_s,
            grace=self._grace,
            watchdog=self._watchdog,
        )

    async def _look_at_table(self) -> None:
        """Raise ``Corrupted`` if learners fail because the table is damaged."""
        with suppress(ServiceLost, NotFound):  # it comes back, or learners say so
            await self._replay.confirm()
