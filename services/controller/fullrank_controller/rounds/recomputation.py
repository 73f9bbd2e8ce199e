"""Units of the open round that the controller computes itself."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fullrank.common.errors import FullrankError, Unsound
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.net.messages import sample_message
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.samplers import Sample
from fullrank.rounds.quorum import computed_value, units_of
from fullrank.rounds.reports import Claim, reporter_of
from fullrank.training.soundness import sound_updates
from fullrank.wiring import Training
from fullrank_controller.cancellation import Cancellation

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
