"""Disputes over committed units: recompute them, quarantine culprits, condemn what is wrong."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from fullrank.algorithms.roles import Algorithm
from fullrank.audit.ledger import CONTROLLER, Dispute
from fullrank.audit.proof import Finding, advance, doubtful_from, prove
from fullrank.common.errors import (
    CheckpointUnusable,
    Corrupted,
    FullrankError,
    NotFound,
    ServiceLost,
)
from fullrank.common.types import LearnerId
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.samplers import Sample
from fullrank.rounds.reports import reporter_of
from fullrank.runs.checkpoint import Checkpoint
from fullrank.runs.ending import held_since
from fullrank.runs.identity import JOURNAL
from fullrank.runs.journal import read
from fullrank.runs.journal_format import Entry
from fullrank.runs.recovery import newest_before
from fullrank.training.trainer import part
from fullrank.wiring.training import initial_algorithm
from fullrank_controller.term import Term

log = logging.getLogger(__name__)


class Condemned(Exception):
    """Committed iterations do not stand; the run is restored without them, under a later term."""


class Unsettled(Corrupted):
    """A dispute cannot be settled, and the run cannot continue without its parties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """Stored state of the iterations up to a dispute."""

    checkpoint: Checkpoint | None
    """The checkpoint before the first entry; None if that is iteration 0."""
    entries: Sequence[Entry]
    since: int
    """First entry that no audit has confirmed."""


class Disputes:
    """Settles disputes by computing the disputed units again from a checkpoint and the journal.

    Where that is impossible, no party is believed: all are quarantined, and what rests on
    their word is taken back (ADR 54).

    Args:
        term: The open parts of the term. The run's ledger holds the disputes; the store condemns
            iterations.
        replay: Holds the minibatches.
    """

    def __init__(self, term: Term, replay: ReplayClient) -> None:
        self._condemn = term.store.condemn
        self._config, self._run, self._directory = term.config, term.run, term.directory
        self._training, self._replay = term.training, replay

    async def settle(self) -> None:
        """Settle every open dispute.

        Raises:
            Condemned: A committed unit was wrong, or rests on learners that may be wrong.
            Unsettled: The run cannot go on without the parties to a dispute.
        """
        while (dispute := self._run.ledger.dispute()) is not None:
            self._run.ledger.settle(dispute.iteration)
            log.error(
                "disputed iteration=%d units=%s learners=%s",
                dispute.iteration,
                dispute.units,
                _learners(dispute),
            )
            try:
                past = self._past(dispute)
            except FullrankError as error:
                raise self._stop(dispute, str(error)) from None
            try:
                finding = await self._prove(dispute, past)
            except ServiceLost as error:
                raise await self._take_back(_doubtful(dispute, past), str(error)) from None
            except FullrankError as error:
                raise await self._leave_out(dispute, past, str(error)) from None
            await self._act(finding)

    def _stop(self, dispute: Dispute, reason: str) -> Unsettled:
        """End the run with iterations that cannot be taken back; its later status names them."""
        said = self._described(dispute, reason)
        log.error("unsettled %s", said)
        self._run.roster.suspect(_learners(dispute), reason, iteration=dispute.iteration)
        self._directory.keep_caveat(said)
        return Unsettled(f"{said}; it stays committed, as the status of a resumed run says")

    async def _leave_out(self, dispute: Dispute, past: _Past, reason: str) -> Exception:
        """Quarantine all parties, and take back the iterations that rest on them."""
        said = self._described(dispute, reason)
        log.error("unsettled %s", said)
        for learner in _learners(dispute):
            why = f"its dispute with others on iteration {dispute.iteration} is unsettled"
            self._run.roster.quarantine(learner, why, iteration=dispute.iteration, kind="left out")
        taken_back = await self._take_back(_doubtful(dispute, past), said)
        if await self._run.membership.bears_the_loss():
            return taken_back
        return Unsettled(
            f"{taken_back}, and too few other learners are left; look for failing memory or mixed "
            "builds among them, then resume"
        )

    def _described(self, dispute: Dispute, reason: str) -> str:
        parties = _learners(dispute)
        named = self._run.roster.named(parties, at=dispute.iteration)
        return (
            f"learners {parties} disagree with others on units {list(dispute.units)} of iteration "
            f"{dispute.iteration}, and it cannot be decided who is right: {reason}; they are "
            f"{named}"
        )

    def _past(self, dispute: Dispute) -> _Past:
        """Read the newest checkpoint before a dispute, and the journal from there on.

        Raises:
            CheckpointUnusable: Checkpoint and journal do not reach back to the iteration.
        """
        audited = self._run.ledger.audited_before(dispute.iteration)
        since = 0 if audited is None else audited + 1
        path = self._directory.path
        checkpoint = newest_before(path, since) or newest_before(path, dispute.iteration)
        first = checkpoint.iteration + 1 if checkpoint else 0
        entries = read(self._directory.path / JOURNAL, first=first)
        if len(entries) <= dispute.iteration - first:
            raise CheckpointUnusable(
                f"neither a checkpoint nor the journal reaches back to iteration {first}; raise "
                "checkpoint.keep"
            )
        return _Past(checkpoint=checkpoint, entries=entries, since=max(since, first))

    async def _prove(self, dispute: Dispute, past: _Past) -> Finding:
        """Recompute the disputed units.

        Raises:
            FullrankError: That is impossible here, or rows that it needs are lost.
        """
        shadow, row_size = self._shadow(), self._training.problem.row_size
        if past.checkpoint is not None:
            shadow.optimiser.load(part(past.checkpoint.arrays, "algorithm"))
        report = reporter_of(shadow.problem, seed=self._config.seed)
        proof = prove(shadow, past.entries, dispute, since=past.since, report=report)
        step = await asyncio.to_thread(advance, proof, None)
        held = held_since(self._directory.caveats)
        while isinstance(step, Sample):
            if step.iteration < held:
                raise NotFound(f"replay has lost rows of iteration {step.iteration}")
            fetched = await self._replay.get_sample(sample_message(step), row_size=row_size)
            step = await asyncio.to_thread(advance, proof, fetched.rows)
        return step

    def _shadow(self) -> Algorithm:
        """A second copy of the algorithm, as drawn from the seed.

        Raises:
            FullrankError: This process would not compute the bits of the learners.
        """
        shadow = initial_algorithm(self._config, self._training)
        numerics = self._run.roster.numerics
        if numerics is None or numerics.fingerprint != shadow.gradients.fingerprint():
            raise FullrankError("the controller's numeric fingerprint is not that of the run")
        return shadow

    async def _act(self, finding: Finding) -> None:
        """Quarantine the culprits, and condemn iterations that committed their bits."""
        for learner, iteration in finding.culprits.items():
            reason = f"its update of iteration {iteration} was wrong, computed again"
            log.error("convicted learner=%d reason=%s", learner, reason)
            self._run.roster.quarantine(learner, reason, iteration=iteration)
        if finding.wrong is not None:
            raise await self._take_back(finding.wrong, f"iteration {finding.wrong} was wrong")

    async def _take_back(self, first: int, reason: str) -> Condemned:
        """Condemn the committed iterations from ``first`` on."""
        await self._condemn(first, reason)
        last = self._run.progress.committed - 1
        return Condemned(f"{reason}: committed iterations {first} to {last} are taken back")


def _learners(dispute: Dispute) -> list[LearnerId]:
    return sorted(dispute.parties - {CONTROLLER})


def _doubtful(dispute: Dispute, past: _Past) -> int:
    """The first iteration since the last audit that rests on the parties to a dispute."""
    return doubtful_from(past.entries, dispute, since=past.since)
