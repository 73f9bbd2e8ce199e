"""Audits: compare every learner's digests now and then, and compute drawn units meanwhile."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from fullrank.audit.draws import AuditDraws
from fullrank.audit.ledger import CONTROLLER, Holders
from fullrank.audit.proof import Evidence
from fullrank.codes import Code
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.config.tree import RunConfig
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.samplers import Sample
from fullrank.rounds.quorum import Quorum, claims_of
from fullrank.rounds.reports import Claim
from fullrank.run.assignment import RowAssignment
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import RecomputedStatements
from fullrank.wiring import Training, audit_period
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.recomputation import Recomputation
from fullrank_controller.rounds.round_runner import RoundResult
from fullrank_controller.run import Run

log = logging.getLogger(__name__)

TRIES = 3
"""Rounds in which the controller attempts to finish a unit before the round ends."""


class Auditor:
    """Audits the committed units of one run.

    In one of every ``audit.every`` iterations the round is not cancelled at its commit, so that all
    learners report their digests. Which one, and which units are computed again, is drawn under
    the secret of the run.

    Args:
        config: The resolved configuration.
        run: Its ledger compares the learners' reports.
        training: Computes units of the open round; its parameters are those that were broadcast.
        replay: Holds the minibatches.
        secret: Key of the draws.

    Attributes:
        recomputation: Units of the open round that the controller computes.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        training: Training,
        replay: ReplayClient,
        *,
        secret: bytes,
    ) -> None:
        self._run, self._training = run, training
        self._units = len(training.problem.units)
        self._every = audit_period(config, training.problem.data)
        self._faults, self._spot = config.audit.byzantine, config.audit.spot
        self._draws = AuditDraws(secret)
        self.recomputation = Recomputation(training, replay, seed=config.seed)
        self._tries = 0
        self._audited: int | None = None
        """The audited iteration whose late reports are awaited."""

    def is_due(self, iteration: int) -> bool:
        """True if all learners report in this iteration."""
        return bool(self._every) and self._draws.audits(iteration, every=self._every)

    def begin(self, sample: Sample, ahead: "asyncio.Task[object] | None") -> None:
        """Recompute a unit during the round, after an audit is due until it succeeds.

        Args:
            sample: The round's minibatch.
            ahead: Concurrent collection, which goes first as both use the same kernels.
        """
        self.recomputation.open(sample, ahead)
        if self.is_due(sample.iteration):
            self._tries = TRIES
        if self._tries and self.computes_alike():
            self._tries -= 1
            unit = self._draws.below(self._units, "unit", sample.iteration)
            self.recomputation.begin([Claim((unit,))])

    def quorum(self, iteration: int, code: Code) -> Quorum | None:
        """The rule by which an iteration may be committed; None where reports may differ."""
        if not self._training.problem.data.exact:
            return None
        drawn = frozenset(
            claim
            for index, claim in enumerate(claims_of(code) if self._spot else ())
            if self._draws.spots(iteration, index, probability=self._spot)
        )
        return Quorum(faults=self._faults, drawn=drawn)

    def recompute(self, opened: OpenRound[Member], claims: Sequence[Claim]) -> None:
        """Compute statements of the open round, whose values come as an event."""

        def deliver(values: Mapping[Claim, bytes]) -> None:
            computed = RecomputedStatements(claims=frozenset(claims), values=values)
            self._run.reception.notify(computed, self._run.identity.ids(opened))

        self.recomputation.begin(claims, deliver)

    def computes_alike(self) -> bool:
        """True if the controller computes the bits of the run; otherwise it says so."""
        numerics, progress = self._run.roster.numerics, self._run.progress
        own = self._training.algorithm.gradients.fingerprint()
        if numerics is None or numerics.fingerprint == own:
            return True
        progress.record_caveat(
            "recomputation",
            f"the controller's numeric fingerprint is not that of the run ({numerics.identity}): "
            "it recomputes no unit, and a unit on which all its holders agree is believed",
        )
        return False

    def committed(self, result: RoundResult, sample: Sample) -> Evidence:
        """Open the iteration for comparison; returns the evidence for the journal."""
        decision, round_ = result.decision, result.opened.round
        exact = not decision.error_bound
        own = self.recomputation.take()
        if own:
            self._tries = 0
        reports = {**round_.reports, CONTROLLER: own}
        if decision.variance is None:  # otherwise learners may differ and all be right
            self._run.ledger.commit(
                round_.iteration,
                decision.reports if exact else (),
                reports,
                holders_in(result.opened.assignment),
            )
        if self.is_due(round_.iteration):
            self._run.reception.file_queued_reports()
            self._audited = round_.iteration
        return Evidence(
            sample=sample,
            digests=decision.reports,
            reports=_vouched(reports, decision.reports),
        )

    async def await_late_reports(self, *, patience_s: float) -> None:
        """After an audited iteration, wait for the learners that still compute it."""
        audited, self._audited = self._audited, None
        if audited is None:
            return
        try:
            async with asyncio.timeout(patience_s):
                while awaited := self._awaited(audited):
                    await self._run.reception.filed()
        except TimeoutError:
            log.info("not_audited iteration=%d learners=%s", audited, sorted(awaited))

    def _awaited(self, iteration: int) -> frozenset[LearnerId]:
        present = {member.learner for member in self._run.roster.eligible}
        return self._run.ledger.awaited(iteration) & present


def holders_in(assignment: RowAssignment[Member]) -> Holders:
    """The holders of an iteration's rows."""
    rows = {row: (member.learner, member.lease) for row, member in assignment.holders.items()}
    return Holders(assignment.epoch, assignment.code.matrix, assignment.extra_rows, rows)


def _vouched(
    reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]], digests: Sequence[bytes]
) -> dict[LearnerId, list[UnitIndex]]:
    """Units whose committed digest each learner reported."""
    return {
        learner: [unit for unit, digest in own.items() if digest == digests[unit]]
        for learner, own in reports.items()
    }
