"""Audits: everybody is heard out now and then, the controller computes a unit, disputes end."""

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from fullrank.algorithms import Algorithm, IndependentAlgorithm
from fullrank.audit.ledger import CONTROLLER, WINDOW, Dispute
from fullrank.audit.proof import Evidence, Finding, prove
from fullrank.codes import support
from fullrank.common.errors import Cancelled, CheckpointUnusable, FullrankError
from fullrank.common.types import FloatArray, LearnerId, UnitIndex
from fullrank.common.updates import unit_digest
from fullrank.config import RunConfig
from fullrank.replay import Sample
from fullrank.rounds.round import Round
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.messages import sample_message
from fullrank.runs.event_log import TakenBack
from fullrank.runs.journal import read, supersede
from fullrank.runs.recovery import newest_before
from fullrank.training.trainer import Training, part
from fullrank.wiring import recipe_of
from fullrank_controller.persistence.run_directory import RunDirectory
from fullrank_controller.rounds.events import Reported
from fullrank_controller.rounds.round_runner import Gathered
from fullrank_controller.run_state import Run

log = logging.getLogger(__name__)

TRIES = 3
"""Rounds in which the controller tries to finish a unit of its own before the round ends."""


class RolledBack(Exception):
    """Committed iterations were taken back; the run goes on under a later term."""


class Auditing:
    """Watches one run's committed units.

    Args:
        config: The resolved configuration.
        run: Its ledger takes what learners report late.
        training: Computes units of the open round; its parameters are those that were broadcast.
        replay: Where minibatches come from.
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
        comparable = not isinstance(training.algorithm, IndependentAlgorithm)
        self._every = config.audit.every if comparable else 0
        self._tries = 0
        self._computing: asyncio.Task[None] | None = None
        self._stopped = threading.Event()
        self._open: dict[LearnerId, Sequence[UnitIndex]] = {}
        self._iteration = 0

    @property
    def spare_rows(self) -> int:
        """Rows that replay holds beyond its capacity, so that iterations taken back sample alike.

        As many as are collected from one audit to the next, and while a report is late.
        """
        config = self._config
        rows = config.environment.copies * config.collect.steps
        return (self._every + WINDOW) * rows if self._every else 0

    def due(self, iteration: int) -> bool:
        """Whether everybody is heard out in this iteration."""
        return bool(self._every) and (iteration + 1) % self._every == 0

    def begin(self, sample: Sample, ahead: "asyncio.Task[object] | None") -> None:
        """While the round is open, compute a unit now and then.

        Args:
            sample: The round's minibatch.
            ahead: The collection beside the round, which goes first: both use the same kernels.
        """
        if self.due(sample.iteration):
            self._tries = TRIES
        if self._tries:
            self._tries -= 1
            self._stopped.clear()
            self._computing = asyncio.create_task(self._compute(sample, ahead))

    async def end(self) -> None:
        """The round is decided: drop what is unfinished, before parameters change."""
        if self._computing is not None:
            self._stopped.set()
            await asyncio.wait({self._computing})
            self._computing.result()
            self._computing = None

    async def _compute(self, sample: Sample, ahead: "asyncio.Task[object] | None") -> None:
        unit = sample.iteration // max(1, self._every) % self._run.units
        try:
            if ahead is not None:
                await asyncio.wait({ahead})
            batch = await self._fetch(sample)
            digest = await asyncio.to_thread(self._digest, batch, unit, sample.iteration)
            self._proceed()  # finished too late, it would count for the next iteration
        except FullrankError as error:
            log.debug("recomputation_dropped iteration=%d reason=%s", sample.iteration, error)
            return
        self._tries = 0
        self._run.own_digests = {unit: digest}
        log.debug("recomputed iteration=%d unit=%d", sample.iteration, unit)

    async def _fetch(self, sample: Sample) -> FloatArray:
        self._proceed()
        batch = np.empty((sample.size, self._training.layout.row_size), np.float32)
        await self._replay.get_sample(sample_message(sample), batch)
        return batch

    def _digest(self, batch: FloatArray, unit: UnitIndex, iteration: int) -> bytes:
        updates = self._training.algorithm.updates(
            batch, [unit], iteration=iteration, check_cancelled=self._proceed
        )
        return unit_digest(dict(updates)[unit])

    def _proceed(self) -> None:
        if self._stopped.is_set():
            raise Cancelled("the round is decided")

    def committed(self, opened: Round, gathered: Gathered, sample: Sample) -> Evidence:
        """Open the iteration for comparison; returns what the journal keeps of it."""
        run, decision = self._run, gathered.decision
        exact = not decision.error_bound
        reports = {**opened.reports, CONTROLLER: run.own_digests}
        run.own_digests = {}
        if decision.variance is None:  # else learners that differ are all right
            run.ledger.commit(opened.iteration, decision.digests if exact else (), reports)
        if self.due(opened.iteration):
            self._hear_waiting()
            self._iteration = opened.iteration
            self._open = {
                each: support(opened.coefficients(row)) for each, row in gathered.rows.items()
            }
        return Evidence(
            sample=sample, digests=decision.digests, reports=_vouched(reports, decision.digests)
        )

    def _hear_waiting(self) -> None:
        """Digests that had come but were not looked at when the round was decided."""
        for _ in range(self._run.inbox.qsize()):
            event = self._run.inbox.get_nowait()
            if isinstance(event, Reported):
                self._run.hear_late(event.ids, event.learner, event.digests)
            else:
                self._run.inbox.put_nowait(event)

    async def hear_out(self, *, patience_s: float) -> None:
        """After an audited iteration: wait until all who still compute it have reported."""
        if not self._open:
            return
        try:
            async with asyncio.timeout(patience_s):
                while awaited := self._awaited():
                    self._run.heard.clear()
                    await self._run.heard.wait()
        except TimeoutError:
            log.info("not_audited iteration=%d learners=%s", self._iteration, sorted(awaited))
        self._open = {}

    def _awaited(self) -> frozenset[LearnerId]:
        present = {member.learner for member in self._run.roster.eligible}
        return self._run.ledger.awaited(self._iteration, self._open) & present

    async def settle(self) -> None:
        """Find out who was right in each dispute.

        Raises:
            RolledBack: A committed unit was wrong.
        """
        while (dispute := self._run.ledger.dispute()) is not None:
            self._run.ledger.settle(dispute.iteration)
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
                self._act(dispute, finding)

    def _leave_open(self, dispute: Dispute, reason: str) -> None:
        self._run.caveats["audit"] = (
            f"learners {sorted(dispute.parties)} disagree on units {list(dispute.units)} of "
            f"iteration {dispute.iteration}, and nobody can tell who is right: {reason}"
        )
        log.error("unsettled %s", self._run.caveats["audit"])

    async def _prove(self, dispute: Dispute) -> Finding:
        """Compute the disputed units again, from the newest checkpoint before them."""
        audited = self._run.ledger.audited_before(dispute.iteration)
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
        loop = asyncio.get_running_loop()

        def gather(sample: Sample) -> FloatArray:
            self._stopped.clear()
            return asyncio.run_coroutine_threadsafe(self._fetch(sample), loop).result()

        shadow = self._shadow()
        if checkpoint is not None:
            shadow.load(part(checkpoint.arrays, "algorithm"))
        return await asyncio.to_thread(
            prove, shadow, entries, dispute, since=max(since, first), gather=gather
        )

    def _shadow(self) -> Algorithm:
        """A second copy of the algorithm, as drawn from the seed.

        Raises:
            FullrankError: This process would not get the learners' bits.
        """
        config = self._config
        shadow = recipe_of(config).make(
            self._training.agents, seed=config.seed, device=config.compute.device
        )
        theirs = {member.fingerprint for member in self._run.roster.eligible}
        if theirs != {shadow.fingerprint()}:
            raise FullrankError("the controller's numeric fingerprint is not that of the learners")
        return shadow

    def _act(self, dispute: Dispute, finding: Finding) -> None:
        """Quarantine whoever was wrong, and take back what they had committed."""
        for learner, iteration in finding.culprits.items():
            reason = f"its update of iteration {iteration} was wrong, computed again"
            log.error("convicted learner=%d reason=%s", learner, reason)
            self._run.roster.quarantine(learner, reason, present_at=iteration)
        if finding.wrong is not None:
            self._run.event_log.append(TakenBack(term=self._run.term, first=finding.wrong))
            supersede(self._directory.journal, term=self._run.term + 1, first=finding.wrong)
            raise RolledBack(
                f"iteration {finding.wrong} was wrong: committed iterations {finding.wrong} to "
                f"{self._run.committed - 1} are taken back"
            )


def _vouched(
    reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]], digests: Sequence[bytes]
) -> dict[LearnerId, list[UnitIndex]]:
    return {
        learner: [unit for unit, digest in own.items() if digest == digests[unit]]
        for learner, own in reports.items()
    }
