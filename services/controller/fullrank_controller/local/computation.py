"""The run's table and the decision of an iteration for all rows of the code, in this process."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fullrank.codes import Code, Decoder
from fullrank.codes.targets import described
from fullrank.common.errors import NotDecodable
from fullrank.common.failpoints import reach
from fullrank.common.rows import Rows
from fullrank.common.types import FloatArray, LearnerId, RunTerm
from fullrank.config import RunConfig
from fullrank.config.code import code_of
from fullrank.host.run_directory import lock_replay
from fullrank.replay.fence import Fence
from fullrank.replay.limits import rows_per_append
from fullrank.replay.samplers import Sample
from fullrank.replay.store import Store, table_key
from fullrank.replay.table import TABLE, Table
from fullrank.rounds.decision import Decoded, Verdict
from fullrank.rounds.decoding import open_round
from fullrank.run.assignment import working_rows
from fullrank.runs.events import EventLog, Reopened, Stored, Truncated
from fullrank.training.centralised import Centralised
from fullrank.training.mirror import Mirror, fits
from fullrank.training.worker import AssignedRow, SharedGradients, Worker
from fullrank.wiring.training import Training
from fullrank_controller.local.ranks import Group

log = logging.getLogger(__name__)

FEW_BYTES = 2**16
"""Rows up to this size are checked and stored within about half a millisecond."""


class LocalTable:
    """Holds ``<run>/replay`` and reads and writes its table, with the service's semantics.

    A replay service finds every row when the run moves to services, and the other way round.

    Args:
        run_dir: Directory of the run.
        sync: Whether rows are on disk before they are acknowledged.

    Attributes:
        device: Device that mirrors the table, if it has room; None: none does.

    Raises:
        RunDirectoryInUse: A replay service holds the directory.
    """

    def __init__(self, run_dir: Path, *, sync: bool) -> None:
        directory = run_dir / "replay"
        self._lock = lock_replay(directory)
        self._sync, self._fence, self._key = sync, Fence(directory), ""
        self._store = Store(directory, sync=sync)
        self._event_log = EventLog(run_dir, "replay")
        self.device: torch.device | None = None
        self._mirror: Mirror | None = None
        for name, table in self._store.tables.items():
            self._event_log.append(Reopened(table=name, head=table.head))
        for name, rows in self._store.lost.items():
            log.warning("rows_lost table=%s rows=%d", name, rows)

    def close(self) -> None:
        """Release the directory."""
        self._event_log.close()
        self._lock.close()

    @property
    def _table(self) -> Table:
        return self._store.get(self._key)

    async def open_table(
        self, *, row_size: int, capacity: int, head: int, run_term: RunTerm
    ) -> tuple[int, int]:
        """Open the table, which then ends at ``head`` or before; returns (tail, head).

        Raises:
            StaleTerm: This term has opened the table already, or a later one has.
            Corrupted: Its file is damaged.
        """
        self._key = table_key(run_term.run, TABLE)
        self._store.open(self._key, row_size=row_size, capacity=capacity)
        self._fence.raise_to(self._key, run_term)
        return await self.truncate(head)

    async def truncate(self, head: int) -> tuple[int, int]:
        """Discard the rows from ``head`` on; returns (tail, head)."""
        self._table.truncate(head)
        self._mirror = None  # the rows that follow are others
        self._event_log.append(Truncated(table=self._key, head=self._table.head))
        return self._table.tail, self._table.head

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows of any size; returns the head.

        Without ``sync`` rows go to memory, which takes less than a change of threads if they are
        few.
        """
        if not self._sync and rows.nbytes <= FEW_BYTES:
            return self._append(first_position, rows)
        return await asyncio.to_thread(self._append, first_position, rows)

    def _append(self, first_position: int, rows: FloatArray) -> int:
        step, head = min(rows_per_append(4 * rows.shape[1]), self._table.capacity), first_position
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            self._table.append(head, block)
            reach("rows.stored")
            stored = Stored(table=self._key, first=head, head=head + len(block))
            self._event_log.append(stored)
            head += len(block)
        return head

    def holds(self, sample: Sample) -> bool:
        """Tell if all rows of a uniform sample are stored, even if its head is not reached."""
        if not sample.size or sample.searched:
            return False
        return int(sample.positions().max()) < self._table.head

    def minibatch(self, sample: Sample, *, row_size: int) -> Rows:
        """Return the sample's transitions, shape (size, row_size); none where learners collect."""
        if not sample.size:
            return np.empty((0, row_size), np.float32)
        if sample.head > self._table.head:  # its rows are held
            positions = sample.positions()
        else:
            positions = self._table.runs(sample).positions()
        return (self._mirrored() or self._table).gather(positions)

    def _mirrored(self) -> Mirror | None:
        """Return the mirror of the table; None where minibatches are gathered in host memory."""
        if self.device is not None and self._mirror is None:
            if fits(self._table, self.device):
                self._mirror = Mirror(self._table, self.device)
            else:
                log.info("mirror=none reason=the table exceeds what %s has free", self.device)
                self.device = None
        return self._mirror


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
        alone = Centralised(self._problem, gradients, seed=config.seed)
        self._targets = group or alone
        sound = SharedGradients(gradients, self._problem, remember=False)
        self._worker = Worker(self._problem, sound, seed=config.seed)
        units, exact = len(self._problem.units), self._problem.data.exact
        self.code: Code = code_of(config, units=units, target=self._problem.target)
        self.rows = working_rows(self.code)
        self.load = units if exact else int(np.count_nonzero(self.code.matrix))
        table.device = alone.mirrored if exact and group is None else None
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
        self, batch: Rows, iteration: int, check_cancelled: Callable[[], None]
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
        self, batch: Rows, iteration: int, check_cancelled: Callable[[], None]
    ) -> tuple[Decoded, float]:
        """Compute, offer and decode all rows, each with samples of its own."""
        round_ = open_round(self._problem, iteration, self.code, seed=self._seed)
        computing = self._worker.compute(
            [AssignedRow.of(row, self.code.matrix[row]) for row in self.rows],
            np.asarray(batch),
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
