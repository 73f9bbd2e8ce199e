"""Disputes over committed units: recompute them, quarantine culprits, roll wrong bits back."""

import asyncio
import logging

from fullrank.algorithms.roles import Algorithm
from fullrank.audit.ledger import Dispute, Ledger
from fullrank.audit.proof import Finding, prove
from fullrank.common.errors import CheckpointUnusable, FullrankError
from fullrank.common.types import FloatArray
from fullrank.config.tree import RunConfig
from fullrank.replay.samplers import Sample
from fullrank.rounds.reports import reporter_of
from fullrank.rpc.messages import sample_message
from fullrank.rpc.replay_client import ReplayClient
from fullrank.runs.events import TakenBack
from fullrank.runs.journal import read, supersede
from fullrank.runs.recovery import newest_before
from fullrank.training.trainer import part
from fullrank.wiring import Training, initial_algorithm
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.run import Run

log = logging.getLogger(__name__)


class RolledBack(Exception):
    """Committed iterations were withdrawn; the run continues under a later term."""


class Disputes:
    """Settles disputes by computing the disputed units again from a checkpoint and the journal.

    Args:
        config: The resolved configuration.
        run: Its ledger holds the disputes.
        training: Determines the layout of minibatches.
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
        self._config, self._run, self._directory = config, run, directory
        self._training, self._replay = training, replay

    @property
    def _ledger(self) -> Ledger:
        return self._run.late_reports.ledger

    async def settle(self) -> None:
        """Settle every open dispute.

        Raises:
            RolledBack: A committed unit was wrong.
        """
        while (dispute := self._ledger.dispute()) is not None:
            self._ledger.settle(dispute.iteration)
            log.error(
                "disputed iteration=%d units=%s learners=%s",
                dispute.iteration,
                dispute.units,
                sorted(dispute.parties),
            )
            try:
                finding = await self._prove(dispute)
            except FullrankError as error:
                self._leave_open(dispute, str(error))
            else:
                self._act(finding)

    def _leave_open(self, dispute: Dispute, reason: str) -> None:
        caveat = (
            f"learners {sorted(dispute.parties)} disagree on units {list(dispute.units)} of "
            f"iteration {dispute.iteration}, and it cannot be decided which is right: {reason}"
        )
        self._run.progress.record_caveat("audit", caveat)
        log.error("unsettled %s", caveat)

    async def _prove(self, dispute: Dispute) -> Finding:
        """Recompute the disputed units from the newest checkpoint before them."""
        audited = self._ledger.audited_before(dispute.iteration)
        since = 0 if audited is None else audited + 1
        path = self._directory.path
        checkpoint = newest_before(path, since) or newest_before(path, dispute.iteration)
        first = checkpoint.iteration + 1 if checkpoint else 0
        entries = read(self._directory.journal, first=first)
        if len(entries) <= dispute.iteration - first:
            raise CheckpointUnusable(
                f"neither a checkpoint nor the journal reaches back to iteration {first}; raise "
                "checkpoint.keep"
            )
        loop, row_size = asyncio.get_running_loop(), self._training.problem.row_size

        def gather(sample: Sample) -> FloatArray:
            fetching = self._replay.get_sample(sample_message(sample), row_size=row_size)
            return asyncio.run_coroutine_threadsafe(fetching, loop).result().rows

        shadow = self._shadow()
        if checkpoint is not None:
            shadow.optimiser.load(part(checkpoint.arrays, "algorithm"))
        return await asyncio.to_thread(
            prove,
            shadow,
            entries,
            dispute,
            since=max(since, first),
            gather=gather,
            report=reporter_of(shadow.problem, seed=self._config.seed),
        )

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

    def _act(self, finding: Finding) -> None:
        """Quarantine the culprits, and withdraw iterations that committed their bits."""
        for learner, iteration in finding.culprits.items():
            reason = f"its update of iteration {iteration} was wrong, computed again"
            log.error("convicted learner=%d reason=%s", learner, reason)
            self._run.roster.quarantine(learner, reason, present_at=iteration)
        if finding.wrong is not None:
            term = self._run.identity.term
            self._run.event_log.append(TakenBack(term=term, first=finding.wrong))
            supersede(self._directory.journal, term=term + 1, first=finding.wrong)
            raise RolledBack(
                f"iteration {finding.wrong} was wrong: committed iterations {finding.wrong} to "
                f"{self._run.progress.committed - 1} are taken back"
            )
