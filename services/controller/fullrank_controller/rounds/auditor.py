"""Audits: compare every learner's digests now and then, and compute drawn units meanwhile."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fullrank.audit.ledger import CONTROLLER, AuditDraws, Holders
from fullrank.audit.proof import Evidence
from fullrank.codes import Code
from fullrank.common.errors import FullrankError, Unsound
from fullrank.common.types import FloatArray, LearnerId, UnitIndex
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.samplers import Sample
from fullrank.rounds.quorum import Quorum, claims_of, computed_value, units_of
from fullrank.rounds.reports import Claim, reporter_of
from fullrank.run.assignment import RowAssignment
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import RecomputedStatements
from fullrank.training.soundness import sound_updates
from fullrank.wiring.training import Training, audit_period
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.port import Cancellation
from fullrank_controller.rounds.round_runner import RoundResult
from fullrank_controller.term import Term

log = logging.getLogger(__name__)

DECIDED = "the round is decided"
"""Reason for which a recomputation stops."""

Deliver: TypeAlias = Callable[[Mapping[Claim, bytes]], None]
"""Takes the values of statements; none if they could not be computed."""


class Recomputation:
    """Computes units of the open round, and drops them if the round is decided first.

    Args:
        training: Its parameters are those that were broadcast.
        replay: Holds the minibatches.
        seed: The run's seed, the key of linear hashes.

    Attributes:
        digests: Reports of the units computed for the open round.
    """

    def __init__(self, training: Training, replay: ReplayClient, *, seed: int) -> None:
        self.digests: Mapping[UnitIndex, bytes] = {}
        self._training, self._replay, self._seed = training, replay, seed
        self._sample: Sample | None = None
        self._latest: asyncio.Task[Any] | None = None
        """The task that goes first as both use the same kernels."""
        self._computing: asyncio.Task[None] | None = None
        self._cancellation = Cancellation(DECIDED)

    def open(self, sample: Sample, ahead: "asyncio.Task[object] | None") -> None:
        """Compute units of a round from now on.

        Args:
            sample: The round's minibatch.
            ahead: Concurrent collection, which goes first.
        """
        self._sample, self._latest = sample, ahead
        self._cancellation = Cancellation(DECIDED)

    def begin(self, claims: Sequence[Claim], deliver: Deliver = lambda values: None) -> None:
        """Start computing the values of statements, after those that were asked for before.

        Args:
            claims: The statements.
            deliver: Takes the values.
        """
        assert self._sample is not None  # the round is open
        compute = self._compute(self._sample, claims, self._latest, deliver)
        self._latest = self._computing = asyncio.create_task(compute)

    async def examine(self, row: int, units: Sequence[UnitIndex]) -> None:
        """Compute units of a row whose vector was not finite, and look at nothing else.

        Args:
            row: Row of C that combines the units; it keys draws of learners' own.
            units: The units.

        Raises:
            Unsound: They are not finite here, either, so that no learner is to blame.
        """
        sample = self._sample
        assert sample is not None  # the round is open
        try:
            if self._latest is not None:
                await asyncio.wait({self._latest})
            batch = await self._fetched(sample, units)
            await asyncio.to_thread(self._judge, batch, row, units, sample.iteration)
        except Unsound:
            raise
        except FullrankError as error:
            log.warning("not_examined iteration=%d row=%d reason=%s", sample.iteration, row, error)

    def _judge(
        self, batch: FloatArray, row: int, units: Sequence[UnitIndex], iteration: int
    ) -> None:
        problem, compute = self._training.problem, self._training.algorithm.gradients.compute
        computed = compute(batch, units, iteration=iteration, row=row)
        for _ in sound_updates(computed, problem, batch, iteration=iteration):
            pass

    async def _fetched(self, sample: Sample, units: Sequence[UnitIndex]) -> FloatArray:
        """Fetch the rows that units read; none where learners draw their own."""
        problem = self._training.problem
        if not sample.size:
            return np.empty((0, problem.row_size), np.float32)
        fetched = await self._replay.get_sample(
            sample_message(sample), row_size=problem.row_size, items=problem.items_of(units)
        )
        return fetched.rows

    async def end(self) -> None:
        """Cancel an unfinished computation before the parameters change."""
        if self._computing is not None:
            self._cancellation.ask()
            await asyncio.wait({self._computing})
            self._computing.result()
            self._computing = None

    async def _compute(
        self,
        sample: Sample,
        claims: Sequence[Claim],
        first: "asyncio.Task[Any] | None",
        deliver: Deliver,
    ) -> None:
        units = units_of(claims)
        try:
            if first is not None:
                await asyncio.wait({first})
            self._cancellation.check()
            batch = await self._fetched(sample, units)
            values = await asyncio.to_thread(self._values, batch, claims, units, sample.iteration)
            self._cancellation.check()  # finished too late, it would count for the next iteration
        except FullrankError as error:
            log.debug("recomputation_dropped iteration=%d reason=%s", sample.iteration, error)
            deliver({})
            return
        reports = {claim.units[0]: value for claim, value in values.items() if claim.is_report}
        self.digests = {**self.digests, **reports}
        for unit in units:
            log.debug("recomputed iteration=%d unit=%d", sample.iteration, unit)
        deliver(values)

    def _values(
        self, batch: FloatArray, claims: Sequence[Claim], units: Sequence[UnitIndex], iteration: int
    ) -> dict[Claim, bytes]:
        """Values of the statements, and of the reports of all their units."""
        problem = self._training.problem
        computing = self._training.algorithm.gradients.compute(
            batch, units, iteration=iteration, check_cancelled=self._cancellation.check
        )
        updates = dict(computing)
        report_of = reporter_of(problem, seed=self._seed)
        values = {Claim((unit,)): report_of(update) for unit, update in updates.items()}
        for claim in claims:
            if not claim.is_report:
                values[claim] = computed_value(claim, updates, problem.vector_size)
        return values

    def take(self) -> Mapping[UnitIndex, bytes]:
        """The reports computed for the open round; none are left for the next."""
        digests, self.digests = self.digests, {}
        return digests


TRIES = 3
"""Rounds in which the controller attempts to finish a unit before the round ends."""


class Auditor:
    """Audits the committed units of one run.

    In one of every ``audit.every`` iterations the round is not cancelled at its commit, so that all
    learners report their digests. Which one, and which units are computed again, is drawn under
    the secret of the run.

    Args:
        term: The open parts of the term. The run's ledger compares the learners' reports; the
            parameters are those that were broadcast.
        replay: Holds the minibatches.

    Attributes:
        recomputation: Units of the open round that the controller computes.
    """

    def __init__(self, term: Term, replay: ReplayClient) -> None:
        self._run, self._training, config = term.run, term.training, term.config
        self._units = len(term.training.problem.units)
        self._every = audit_period(config, term.training.problem.data)
        self._faults, self._spot = config.audit.byzantine, config.audit.spot
        self._draws = AuditDraws(term.directory.secret)
        self.recomputation = Recomputation(term.training, replay, seed=config.seed)
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
