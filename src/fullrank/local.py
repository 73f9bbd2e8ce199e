"""A whole run in one process: the computation of the services without their network.

With ``coded=False`` it is the centralised reference: all units are computed together and applied.
With a code it simulates learners and arrivals, and commits the same bits for any stragglers.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch

from fullrank.codes import Code
from fullrank.codes.targets import target_sizes
from fullrank.common.errors import Corrupted, NotDecodable
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray, LearnerId, UnitIndex
from fullrank.common.updates import update_digest
from fullrank.config import RunConfig
from fullrank.replay import Memory, Sample, Table
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.opening import open_round
from fullrank.rounds.verification import digests_of
from fullrank.training.rollouts import Collected
from fullrank.training.worker import AssignedRow, SharedGradients, Worker
from fullrank.wiring import capacity_of, code_of, delays_of, training_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalIteration:
    """Record of a committed iteration; field names are those of ``metrics.jsonl``."""

    iteration: int
    return_mean: float | None
    """Mean return of the finished episodes, summed over agents; None if none finished."""
    received: tuple[LearnerId, ...]
    """Received rows J in order of arrival; empty for the centralised reference."""
    late: tuple[LearnerId, ...]
    """Learners whose rows were not awaited."""
    exact: bool
    """True if the committed bits are independent of J."""
    variance: float | None
    """Predicted mean variance of the updates, if learners draw their own transitions."""
    condition: float
    """Two-norm condition number of C_J."""
    update_digest: str
    """Digest of the committed updates, hexadecimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Updates of an iteration, and the facts of its round."""

    updates: FloatArray
    digests: Sequence[bytes]
    received: Sequence[LearnerId] = ()
    late: Sequence[LearnerId] = ()
    exact: bool = True
    variance: float | None = None
    condition: float = 1.0


class LocalRun:
    """One run; iterate over it, or ``train`` all configured iterations.

    Args:
        config: The services' configuration tree; sets ``compute.threads`` for the process.
        coded: True to compute the updates by simulated learners and a code.
        independent_learners: True if each learner computes its own units in a separate call, as in
            the services, instead of sharing the updates of others. Slower, with equal bits.
        frozen: Units that are not trained: their updates are zero.

    Raises:
        ConfigError: The configuration names something unknown or is inconsistent.
        EnvironmentFailed: The environment cannot be made.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        coded: bool = True,
        independent_learners: bool = False,
        frozen: Collection[UnitIndex] = (),
    ) -> None:
        torch.set_num_threads(config.compute.threads)
        self._config, self._coded = config, coded
        self._delays = delays_of(config)
        self.training = training_of(config)
        algorithm = self.training.algorithm
        self._problem = algorithm.problem
        gradients = SharedGradients(
            algorithm.gradients,
            self._problem,
            frozen=frozen,
            remember=coded and self._problem.data.exact and not independent_learners,
        )
        self._worker = Worker(self._problem, gradients, seed=config.seed)
        self._table = self._make_table()
        self._ahead: Collected | None = None

    @cached_property
    def code(self) -> Code:
        """Return the code C, with one row per learner."""
        problem = self._problem
        return code_of(self._config, units=len(problem.units), target=problem.target)

    def __iter__(self) -> Iterator[LocalIteration]:
        """Warm up, then commit the configured iterations one by one; valid for one pass only."""
        self._append(self.training.collector.warm_up())
        for iteration in range(self._config.iterations):
            yield self._iterate(iteration)

    def train(self) -> list[LocalIteration]:
        """Run and return all iterations."""
        return list(self)

    def parameter_digest(self) -> str:
        """Hash parameters, targets and optimiser state: equal digests mean equal bits."""
        return self.training.trainer.digest()

    def _make_table(self) -> Table:
        """Make a table large enough for the run, up to the configured capacity."""
        config = self._config
        collected = config.iterations * config.environment.copies * config.collect.steps
        allowed = capacity_of(config, self.training)
        capacity = min(allowed, self.training.collector.warmup + collected)
        return Table(Memory(capacity, self._problem.row_size), capacity=capacity)

    def _append(self, rows: FloatArray) -> None:
        self._table.append(self._table.head, rows)

    def _minibatch(self, sample: Sample) -> FloatArray:
        """Return the sample's transitions; none where learners collect transitions."""
        if not sample.size:
            return np.empty((0, self._table.row_size), dtype=np.float32)
        return self._table.minibatch(sample)

    def _iterate(self, iteration: int) -> LocalIteration:
        collector, trainer = self.training.collector, self.training.trainer
        collected = self._ahead or collector.collect(iteration)
        self._append(collected.rows)
        sample = trainer.sample(iteration, tail=self._table.tail, head=self._table.head)
        batch = self._minibatch(sample)
        self._ahead = None
        if self._config.collect.lag and iteration + 1 < self._config.iterations:
            self._ahead = collector.collect(iteration + 1)
        outcome = (self._round if self._coded else self._centralised)(batch, iteration)
        trainer.apply(outcome.updates)
        return LocalIteration(
            iteration=iteration,
            return_mean=float(collected.returns.mean()) if collected.returns.size else None,
            received=tuple(outcome.received),
            late=tuple(outcome.late),
            exact=outcome.exact,
            variance=outcome.variance,
            condition=outcome.condition,
            update_digest=update_digest(outcome.digests),
        )

    def _centralised(self, batch: FloatArray, iteration: int) -> _Outcome:
        """Compute every unit once, like a single learner with one row per unit."""
        digests: dict[UnitIndex, bytes] = {}
        rows = [
            AssignedRow(row=unit, units=(unit,), coefficients=(1.0,))
            for unit in range(len(self._problem.units))
        ]
        computed = self._worker.compute(
            rows, batch, iteration=iteration, report=digests.__setitem__
        )
        digests |= [computed.last]
        updates, target = np.stack([computed.coded[row.row] for row in rows]), self._problem.target
        if target is None:
            return _Outcome(
                updates=updates.astype(np.float32), digests=[digests[row.row] for row in rows]
            )
        sums = (target @ updates + 0.0).astype(np.float32)
        sizes = target_sizes(target, self._problem.unit_sizes)
        return _Outcome(updates=sums, digests=digests_of(sums, sizes))

    def _round(self, batch: FloatArray, iteration: int) -> _Outcome:
        round_ = open_round(self._problem, iteration, self.code, seed=self._config.seed)
        arrivals = self._arrivals(iteration)
        decision: Decision = Waiting()
        for learner in arrivals:
            report = partial(round_.report, learner=learner)
            computed = self._worker.compute(
                [AssignedRow.of(learner, self.code.matrix[learner])],
                batch,
                iteration=iteration,
                report=report,
            )
            report(*computed.last)
            round_.offer(learner=learner, row=learner, coded=computed.coded[learner])
            decision = round_.decide()
            if isinstance(decision, Corrupt):
                raise Corrupted(f"iteration {iteration}: {decision.reason}")
            if decision.verdict is Verdict.COMMIT:
                break
        if not isinstance(decision, Decoded):
            raise NotDecodable(
                f"iteration {iteration}: rank {round_.rank} of {self.code.units} after all rows "
                f"of {self.code.name}"
            )
        return _Outcome(
            updates=decision.updates,
            digests=decision.digests,
            received=round_.received,
            late=sorted(set(arrivals) - set(round_.received)),
            exact=decision.exact,
            variance=decision.variance,
            condition=round_.condition,
        )

    def _arrivals(self, iteration: int) -> list[LearnerId]:
        """Return the learners with a non-zero load, in simulated order of arrival."""
        seed, learners = self._config.seed, self.code.rows
        delay_s = self._delays.delays(seed=seed, iteration=iteration, learners=learners)
        arrival_s = self.code.load * self._config.compute.emulate_unit_s + delay_s
        tie_break = stream(seed, "arrival", iteration).random(learners)
        order: IntArray = np.lexsort((tie_break, arrival_s))
        return [int(learner) for learner in order if self.code.load[learner]]
