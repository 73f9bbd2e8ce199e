"""A whole run in one process: the computation of the services without their network.

With ``coded=False`` it is the centralised reference: all units are computed together and applied.
With a code it simulates learners and arrivals, and commits the same bits for any stragglers.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fullrank.codes import Code
from fullrank.codes.targets import described
from fullrank.common.errors import CheckpointUnusable, Corrupted, FullrankError, NotDecodable
from fullrank.common.rows import Rows
from fullrank.common.seeding import stream
from fullrank.common.types import FloatArray, IntArray, LearnerId, UnitIndex
from fullrank.common.updates import update_digest
from fullrank.config.code import code_of
from fullrank.config.tree import RunConfig
from fullrank.replay.samplers import Sample
from fullrank.replay.storage import MemoryStorage
from fullrank.replay.table import Table
from fullrank.rounds.decision import Corrupt, Decoded
from fullrank.rounds.decoding import open_round
from fullrank.run.assignment import RowAssignment, working_rows, working_shares
from fullrank.run.machine import Program, RunMachine
from fullrank.run.orders import Apply, Begin, Collect, Compute, Done, Draw, Open, Play, RunOrder
from fullrank.run.placement import Domain, Placement
from fullrank.run.policies import RoundPolicies
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import (
    Arrived,
    Begun,
    Commit,
    Decided,
    Decode,
    Fail,
    Reported,
    RoundEvent,
)
from fullrank.stragglers.base import model_at, stretches_of
from fullrank.training.centralised import Centralised
from fullrank.training.rollouts import Collected
from fullrank.training.worker import SharedGradients, Worker, assigned_rows
from fullrank.wiring.plugins import delays_of
from fullrank.wiring.training import capacity_of, drawn_rows, refuse_free, training_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalIteration:
    """Record of a committed iteration; field names are those of ``metrics.jsonl``."""

    iteration: int
    return_mean: float | None
    """Mean return of the finished episodes, summed over agents; None if none finished."""
    win_rate: float | None
    """Share of the finished episodes that were won; None if none finished or there are no wins."""
    received: tuple[LearnerId, ...]
    """Learners of the received rows J in order of arrival; empty for the centralised reference."""
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
    statistics: Mapping[str, float]
    """Statistics of learning and of whole episodes, by PyMARL's names; empty for algorithms that
    have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Updates of an iteration, and the facts of its round."""

    updates: Rows
    digests: Sequence[bytes]
    received: Sequence[LearnerId] = ()
    late: Sequence[LearnerId] = ()
    exact: bool = True
    variance: float | None = None
    condition: float = 1.0


@dataclass(eq=False, slots=True)
class _Learner:
    """A learner of a run in memory."""

    learner: LearnerId
    domain: Domain = ()
    quarantined: str = ""


class _Learners(list[_Learner]):
    """Learners that are always there, by index."""

    @property
    def eligible(self) -> Sequence[_Learner]:
        """All of them."""
        return self

    def member(self, learner: LearnerId) -> _Learner:
        """The learner of an index."""
        return self[learner]

    def named(self, learners: Iterable[LearnerId], *, at: int) -> str:
        """Learners by index."""
        return ", ".join(f"learner {learner}" for learner in learners)


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
        refuse_free(config)
        torch.set_num_threads(config.compute.threads)
        self._config, self._coded = config, coded
        self._delays, self._time_s = delays_of(config), 0.0
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
        everything = gradients if frozen else algorithm.gradients
        self._everything = Centralised(self._problem, everything, seed=config.seed)
        self._table = self._make_table()
        self._applied = 0
        self._first = 0
        """Position of the newest collection's first row."""
        self._sample: Sample | None = None
        self._collected: Collected | None = None
        self._outcome: _Outcome | None = None

    @cached_property
    def _learners(self) -> _Learners:
        return _Learners(_Learner(index) for index in range(self.code.learners))

    @cached_property
    def code(self) -> Code:
        """Return the code C."""
        problem = self._problem
        return code_of(self._config, units=len(problem.units), target=problem.target)

    def __iter__(self) -> Iterator[LocalIteration]:
        """Warm up, then commit the configured iterations one by one; valid for one pass only.

        A run that was loaded goes on where the state was taken.
        """
        program = Program(
            iterations=self._config.iterations,
            updates=self.training.trainer.updates,
            lag=self._config.collect.lag,
        )
        run = RunMachine(program, applied=self._applied)
        orders = deque(run.step(Begin()))
        while orders:
            order = orders.popleft()
            if isinstance(order, Apply):
                yield self._apply(order.iteration)
            else:
                self._execute(order)
            orders.extend(run.step(Done(order)))

    def train(self) -> list[LocalIteration]:
        """Run and return all iterations."""
        return list(self)

    def parameter_digest(self) -> str:
        """Hash parameters, targets and optimiser state: equal digests mean equal bits."""
        return self.training.trainer.digest()

    @property
    def resumable(self) -> bool:
        """True between two collections, where ``state`` may be called."""
        return self._applied % self.training.trainer.updates == 0

    def state(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the arrays from which another run of this configuration goes on to the same bits.

        They hold the rows of replay, but not those of collections that are passed over.

        Raises:
            FullrankError: The run is not ``resumable``.
        """
        if not self.resumable:
            raise FullrankError(
                f"the run cannot be resumed within its collection: {self._applied} iterations are "
                f"applied, and a collection has {self.training.trainer.updates}"
            )
        table = self._table
        tail = table.head if self._problem.data.epochs else table.tail
        return {
            **self.training.state(resume_at=self._applied),
            "replay.rows": table.gather(np.arange(tail, table.head)),
            "replay.tail": np.array(tail),
            "applied": np.array(self._applied),
            "time_s": np.array(self._time_s),
        }

    def load(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Go on from the arrays returned by ``state``, of a run that has not begun.

        Raises:
            CheckpointUnusable: They are of another algorithm, environment or version.
        """
        if missing := {"applied", "replay.tail", "replay.rows", "time_s"} - state.keys():
            raise CheckpointUnusable(
                f"the state lacks {', '.join(sorted(missing))}: use the version that returned it"
            )
        applied, tail = int(state["applied"]), int(state["replay.tail"])
        self.training.load(state, resume_at=applied)
        self._applied, self._time_s = applied, float(state["time_s"])
        self._table.truncate(tail)
        self._table.append(tail, state["replay.rows"])

    def _make_table(self) -> Table:
        """Make a table large enough for the run, up to the configured capacity.

        The number of rows of whole episodes is unknown; memory is not used before it is written.
        Where nothing is drawn from before a collection of known size, the table holds that alone.
        """
        config, collector = self._config, self.training.collector
        capacity, steps = capacity_of(config, self.training), collector.horizon
        if rows := collector.collection.rows:
            collections = config.iterations // self.training.trainer.updates
            capacity = min(capacity, collector.warmup + collections * rows)
        elif steps and not drawn_rows(config, self.training):
            capacity = min(capacity, config.environment.copies * (1 + steps))
        return Table(MemoryStorage(capacity, self._problem.row_size), capacity=capacity)

    def _execute(self, order: RunOrder) -> None:
        """Execute an order; nothing waits, no other process computes and nothing is stored."""
        collector, table = self.training.collector, self._table
        match order:
            case Open() if not self._applied:
                self._store(collector.warm_up())
            case Play(number):
                collector.collect(number)
            case Collect(number):
                collector.publish(number)
                self._collected = collector.collect(number)
                self._first = table.head
                self._store(self._collected.rows)
            case Draw(iteration):
                self._sample = self.training.trainer.sample(
                    iteration, tail=table.tail, head=table.head, first=self._first
                )
            case Compute():
                assert self._sample is not None  # drawn
                compute = self._round if self._coded else self._centralised
                self._outcome = compute(self._minibatch(self._sample), self._sample.iteration)

    def _store(self, rows: FloatArray) -> None:
        """Append rows, which may be more than the capacity where episodes are whole."""
        table = self._table
        for start in range(0, len(rows), table.capacity):
            table.append(table.head, rows[start : start + table.capacity])

    def _minibatch(self, sample: Sample) -> FloatArray:
        """The sample's transitions; none where learners collect transitions."""
        if not sample.size:
            return np.empty((0, self._table.row_size), dtype=np.float32)
        return self._table.minibatch(sample)

    def _apply(self, iteration: int) -> LocalIteration:
        collected, outcome = self._collected, self._outcome
        assert collected is not None  # by an order
        assert outcome is not None  # by an order
        statistics = self.training.trainer.apply(outcome.updates, iteration=iteration)
        self._applied = iteration + 1
        self._collected = collected.without_episodes
        return LocalIteration(
            iteration=iteration,
            return_mean=float(collected.returns.mean()) if collected.returns.size else None,
            win_rate=collected.win_rate,
            received=tuple(outcome.received),
            late=tuple(outcome.late),
            exact=outcome.exact,
            variance=outcome.variance,
            condition=outcome.condition,
            update_digest=update_digest(outcome.digests),
            statistics={**statistics, **collected.statistics},
        )

    def _centralised(self, batch: FloatArray, iteration: int) -> _Outcome:
        targets = self._everything.compute(batch, iteration=iteration)
        return _Outcome(updates=targets.updates, digests=targets.digests)

    def _round(self, batch: FloatArray, iteration: int) -> _Outcome:
        code, learners, arrivals = self.code, self._learners, self._arrivals(iteration)
        assignment = RowAssignment(
            epoch=0,
            requested=self._config.code,
            code=code,
            holders={row: learners[row // code.rows_per_learner] for row in working_rows(code)},
            members=len(learners),
            placement=Placement(holders=tuple(working_shares(code)), shared=0, changed=0),
        )
        opened = OpenRound(
            open_round(self._problem, iteration, code, seed=self._config.seed),
            assignment,
            members=learners,
            policies=RoundPolicies(undecodable="fail", inexact="commit"),
        )
        _judged(opened, Begun())
        for event in self._contributions(arrivals, batch, iteration):
            if (decision := _judged(opened, event)) is not None:
                received = opened.round.received
                self._time_s += arrivals[received[-1]]
                return _Outcome(
                    updates=decision.updates,
                    digests=decision.digests,
                    received=received,
                    late=sorted(set(arrivals) - set(received)),
                    exact=decision.exact,
                    variance=decision.variance,
                    condition=opened.round.condition,
                )
        raise NotDecodable(
            f"iteration {iteration}: all rows of {code.name} have rank {opened.round.rank} "
            f"and do not determine {described(code.target)}"
        )

    def _contributions(
        self, arrivals: Iterable[LearnerId], batch: FloatArray, iteration: int
    ) -> Iterator[Reported | Arrived]:
        """Compute, learner by learner, what arrives at the controller."""
        for learner in arrivals:
            rows = assigned_rows(self.code, learner)
            for unit, digest, vectors in self._worker.compute(rows, batch, iteration=iteration):
                yield Reported(learner=learner, digests={unit: digest})
                for row, coded in vectors.items():
                    yield Arrived(learner=learner, row=row, coded=coded)

    def _arrivals(self, iteration: int) -> dict[LearnerId, float]:
        """Return the arrivals of the learners with a non-zero load, in simulated order.

        A learner that is away arrives last, since there is no other to compute its units.
        """
        seed, learners = self._config.seed, self.code.learners
        model = model_at(self._delays, self._time_s)
        compute_s = self.code.load * self._config.compute.emulate_unit_s
        arrival_s = compute_s * stretches_of(model, self.code.held, seed=seed, iteration=iteration)
        arrival_s += model.delays(seed=seed, iteration=iteration, learners=learners)
        tie_break = stream(seed, "arrival", iteration).random(learners)
        order: IntArray = np.lexsort((tie_break, arrival_s))
        return {
            int(learner): float(arrival_s[learner]) for learner in order if self.code.load[learner]
        }


def _judged(opened: OpenRound[_Learner], event: RoundEvent) -> Decoded | None:
    """Let a round take an event; returns its decision if that ends it.

    Raises:
        Corrupted: Contributions contradict one another.
    """
    for order in opened.step(event):
        match order:
            case Decode():
                decision = opened.round.decide()
                if isinstance(decision, Corrupt):  # it is this process that is wrong
                    raise Corrupted(f"iteration {opened.round.iteration}: {decision.reason}")
                return _judged(opened, Decided(decision))
            case Commit(decision):
                return decision
            case Fail(error):
                raise error
    return None
