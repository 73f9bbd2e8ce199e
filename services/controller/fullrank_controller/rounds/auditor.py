"""Audits: compare every learner's digests now and then, and recompute a unit meanwhile."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from fullrank.audit.ledger import CONTROLLER
from fullrank.audit.proof import Evidence
from fullrank.codes import support
from fullrank.common.errors import FullrankError
from fullrank.common.types import FloatArray, LearnerId, UnitIndex
from fullrank.config.tree import RunConfig
from fullrank.replay.samplers import Sample
from fullrank.rounds.reports import reporter_of
from fullrank.rpc.messages import sample_message
from fullrank.rpc.replay_client import ReplayClient
from fullrank.wiring import Training, audit_period
from fullrank_controller.cancellation import Cancellation
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.rounds.disputes import Disputes
from fullrank_controller.rounds.open_round import RoundResult
from fullrank_controller.run import Run

log = logging.getLogger(__name__)

DECIDED = "the round is decided"
"""Reason for which a recomputation stops."""
TRIES = 3
"""Rounds in which the controller attempts to finish a unit before the round ends."""


class Auditor:
    """Audits the committed units of one run.

    Every ``audit.every`` iterations a round is not cancelled at its commit, so that all learners
    report their digests.

    Args:
        config: The resolved configuration.
        run: Its ledger compares what learners report.
        training: Computes units of the open round; its parameters are those that were broadcast.
        replay: Holds the minibatches.
        directory: Checkpoints and journal.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        training: Training,
        replay: ReplayClient,
        directory: RunDirectory,
    ) -> None:
        self._run, self._training = run, training
        self._units = len(training.problem.units)
        self._every = audit_period(config, training.problem.data)
        self._recomputation = Recomputation(training, replay, seed=config.seed)
        self._disputes = Disputes(config, run, training, replay, directory)
        self._tries = 0
        self._iteration = 0
        self._holdings: dict[LearnerId, Sequence[UnitIndex]] = {}
        """Units of each learner in the audited iteration whose reports are awaited."""

    def is_due(self, iteration: int) -> bool:
        """True if all learners report in this iteration."""
        return bool(self._every) and (iteration + 1) % self._every == 0

    def begin(self, sample: Sample, ahead: "asyncio.Task[object] | None") -> None:
        """Recompute a unit during the round, after an audit is due until it succeeds.

        Args:
            sample: The round's minibatch.
            ahead: Concurrent collection, which goes first as both use the same kernels.
        """
        if self.is_due(sample.iteration):
            self._tries = TRIES
        if self._tries and self._computes_alike():
            self._tries -= 1
            unit = sample.iteration // max(1, self._every) % self._units
            self._recomputation.begin(sample, unit, ahead)

    def _computes_alike(self) -> bool:
        """True if the controller computes the bits of the run; otherwise it says so."""
        numerics, progress = self._run.roster.numerics, self._run.progress
        own = self._training.algorithm.gradients.fingerprint()
        if numerics is None or numerics.fingerprint == own:
            return True
        progress.record_caveat(
            "recomputation",
            f"the controller's numeric fingerprint is not that of the run ({numerics.identity}): "
            "it recomputes no unit, and what all holders of a unit agree on is believed",
        )
        return False

    async def end(self) -> None:
        """Drop an unfinished recomputation before the parameters change."""
        await self._recomputation.end()

    def committed(self, result: RoundResult, sample: Sample) -> Evidence:
        """Open the iteration for comparison; returns the evidence for the journal."""
        decision, round_ = result.decision, result.opened.round
        exact = not decision.error_bound
        own = self._recomputation.take()
        if own:
            self._tries = 0
        reports = {**round_.reports, CONTROLLER: own}
        if decision.variance is None:  # otherwise learners may differ and all be right
            self._run.late_reports.ledger.commit(
                round_.iteration, decision.reports if exact else (), reports
            )
        if self.is_due(round_.iteration):
            self._run.reception.file_queued_reports()
            self._iteration = round_.iteration
            assignment = result.opened.assignment
            members = list(set(assignment.holders.values()))
            self._holdings = {
                member.learner: support(units)
                for member, units in zip(members, assignment.held(members), strict=True)
            }
        return Evidence(
            sample=sample,
            digests=decision.reports,
            reports=_vouched(reports, decision.reports),
            numerics=self._run.roster.identity,
        )

    async def await_late_reports(self, *, patience_s: float) -> None:
        """After an audited iteration, wait for the learners that still compute it."""
        if not self._holdings:
            return
        try:
            async with asyncio.timeout(patience_s):
                while awaited := self._awaited():
                    await self._run.late_reports.next()
        except TimeoutError:
            log.info("not_audited iteration=%d learners=%s", self._iteration, sorted(awaited))
        self._holdings = {}

    def _awaited(self) -> frozenset[LearnerId]:
        present = {member.learner for member in self._run.roster.eligible}
        return self._run.late_reports.ledger.awaited(self._iteration, self._holdings) & present

    @property
    def disputed(self) -> bool:
        """True if a dispute is open."""
        return self._run.late_reports.ledger.dispute() is not None

    async def settle(self) -> None:
        """Settle every open dispute.

        Raises:
            RolledBack: A committed unit was wrong.
        """
        await self._disputes.settle()


def _vouched(
    reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]], digests: Sequence[bytes]
) -> dict[LearnerId, list[UnitIndex]]:
    """Units whose committed digest each learner reported."""
    return {
        learner: [unit for unit, digest in own.items() if digest == digests[unit]]
        for learner, own in reports.items()
    }


log = logging.getLogger(__name__)


class Recomputation:
    """Computes one unit of the open round, and drops it if the round is decided first.

    Args:
        training: Its parameters are those that were broadcast.
        replay: Holds the minibatches.
        seed: The run's seed, the key of linear hashes.

    Attributes:
        digests: Digests of the units computed for the open round.
    """

    def __init__(self, training: Training, replay: ReplayClient, *, seed: int) -> None:
        self.digests: Mapping[UnitIndex, bytes] = {}
        self._training, self._replay, self._seed = training, replay, seed
        self._computing: asyncio.Task[None] | None = None
        self._cancellation = Cancellation(DECIDED)

    def begin(self, sample: Sample, unit: UnitIndex, ahead: "asyncio.Task[object] | None") -> None:
        """Start computing a unit.

        Args:
            sample: The round's minibatch.
            unit: The unit.
            ahead: Concurrent collection, which goes first as both use the same kernels.
        """
        self._cancellation = Cancellation(DECIDED)
        self._computing = asyncio.create_task(self._compute(sample, unit, ahead))

    async def end(self) -> None:
        """Cancel an unfinished computation before the parameters change."""
        if self._computing is not None:
            self._cancellation.ask()
            await asyncio.wait({self._computing})
            self._computing.result()
            self._computing = None

    async def _compute(
        self, sample: Sample, unit: UnitIndex, ahead: "asyncio.Task[object] | None"
    ) -> None:
        try:
            if ahead is not None:
                await asyncio.wait({ahead})
            self._cancellation.check()
            problem = self._training.problem
            fetched = await self._replay.get_sample(
                sample_message(sample), row_size=problem.row_size, items=problem.items_of([unit])
            )
            digest = await asyncio.to_thread(self._digest, fetched.rows, unit, sample.iteration)
            self._cancellation.check()  # finished too late, it would count for the next iteration
        except FullrankError as error:
            log.debug("recomputation_dropped iteration=%d reason=%s", sample.iteration, error)
            return
        self.digests = {unit: digest}
        log.debug("recomputed iteration=%d unit=%d", sample.iteration, unit)

    def _digest(self, batch: FloatArray, unit: UnitIndex, iteration: int) -> bytes:
        updates = self._training.algorithm.gradients.compute(
            batch, [unit], iteration=iteration, check_cancelled=self._cancellation.check
        )
        report_of = reporter_of(self._training.problem, seed=self._seed)
        return report_of(dict(updates)[unit])

    def take(self) -> Mapping[UnitIndex, bytes]:
        """The digests computed for the open round; none are left for the next."""
        digests, self.digests = self.digests, {}
        return digests
