"""The decision of an iteration, computed in this process for all rows of the code."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fullrank.codes import Code, Decoder
from fullrank.codes.targets import described
from fullrank.common.errors import NotDecodable
from fullrank.common.types import FloatArray, LearnerId
from fullrank.config import RunConfig
from fullrank.config.code import code_of
from fullrank.replay.samplers import Sample
from fullrank.rounds.decision import Decoded, Verdict
from fullrank.rounds.decoding import open_round
from fullrank.run.assignment import working_rows
from fullrank.training.centralised import Centralised
from fullrank.training.worker import AssignedRow, SharedGradients, Worker
from fullrank.wiring.training import Training
from fullrank_controller.local.ranks import Group
from fullrank_controller.local.table import LocalTable

LEARNER: LearnerId = 0
"""Learner index of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedRound:
    """A decision with its condition number."""

    decision: Decoded
    condition: float
    gather_s: float
    """Time to gather the minibatch, seconds."""


class Computation:
    """Computes decisions with the authoritative parameters.

    The bits do not depend on J, so units are computed once and neither encoded nor decoded. Only
    where learners draw samples of their own is every row computed and decoded.

    Args:
        config: The resolved configuration.
        training: Its parameters are used in place.
        table: Holds the minibatches.
        group: Computes the targets in several processes; None: this one computes them.

    Attributes:
        code: The configured code.
        rows: Rows of the code that combine at least one unit.
        load: Units computed in an iteration.
    """

    def __init__(
        self,
        config: RunConfig,
        training: Training,
        table: LocalTable,
        group: Group | None = None,
    ) -> None:
        self._problem, gradients = training.problem, training.algorithm.gradients
        self._seed, self._table = config.seed, table
        self._targets = group or Centralised(self._problem, gradients, seed=config.seed)
        sound = SharedGradients(gradients, self._problem, remember=False)
        self._worker = Worker(self._problem, sound, seed=config.seed)
        units, exact = len(self._problem.units), self._problem.data.exact
        self.code: Code = code_of(config, units=units, target=self._problem.target)
        self.rows = working_rows(self.code)
        self.load = units if exact else int(np.count_nonzero(self.code.matrix))
        self._compute = self._compute_units if exact else self._compute_rows
        self._condition = self._condition_of_all()

    def _condition_of_all(self) -> float:
        decoder = Decoder(self.code)
        for row in self.rows:
            decoder.offer(row=row)
        return decoder.condition

    def compute(self, sample: Sample, check_cancelled: Callable[[], None]) -> ComputedRound:
        """Compute the decision of a sample.

        Raises:
            Cancelled: ``check_cancelled`` raised it.
            NotDecodable: All rows of the code do not determine the updates.
        """
        started = time.perf_counter()
        batch = self._table.minibatch(sample, row_size=self._problem.row_size)
        gather_s = time.perf_counter() - started
        decision, condition = self._compute(batch, sample.iteration, check_cancelled)
        return ComputedRound(decision=decision, condition=condition, gather_s=gather_s)

    def _compute_units(
        self, batch: FloatArray, iteration: int, check_cancelled: Callable[[], None]
    ) -> tuple[Decoded, float]:
        targets = self._targets.compute(batch, iteration=iteration, check_cancelled=check_cancelled)
        decision = Decoded(
            verdict=Verdict.COMMIT,
            updates=targets.updates,
            digests=targets.digests,
            reports=targets.reports,
            rows=tuple((row, LEARNER) for row in self.rows),
        )
        return decision, self._condition

    def _compute_rows(
        self, batch: FloatArray, iteration: int, check_cancelled: Callable[[], None]
    ) -> tuple[Decoded, float]:
        """Compute, offer and decode all rows, each with samples of its own."""
        round_ = open_round(self._problem, iteration, self.code, seed=self._seed)
        computing = self._worker.compute(
            [AssignedRow.of(row, self.code.matrix[row]) for row in self.rows],
            batch,
            iteration=iteration,
            check_cancelled=check_cancelled,
        )
        for unit, digest, complete in computing:
            round_.report(unit, digest, learner=LEARNER)
            for row, coded in complete.items():
                round_.offer(learner=LEARNER, row=row, coded=coded)
        decision = round_.decide()
        if not isinstance(decision, Decoded):
            raise NotDecodable(
                f"iteration {iteration}: all rows of {self.code.name} have rank {round_.rank} "
                f"and do not determine {described(self.code.target)}"
            )
        return decision, round_.condition
