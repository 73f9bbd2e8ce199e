"""Units that the controller recomputes itself while a round is open."""

import asyncio
import logging
import threading
from collections.abc import Mapping

from fullrank.common.errors import Cancelled, FullrankError
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.replay.samplers import Sample
from fullrank.rounds.reports import reporter_of
from fullrank.rpc.clients import ReplayClient
from fullrank.rpc.messages import sample_message
from fullrank.wiring import Training

log = logging.getLogger(__name__)


class Recomputation:
    """Computes one unit of the open round, and drops it if the round is decided first.

    Args:
        training: Its parameters are those that were broadcast.
        replay: Holds the minibatches.
        seed: The run's seed, the key of linear hashes.

    Attributes:
        digests: Digests of the units computed for the open round.
    """

    def __init__(self, training: Training, replay: ReplayClient, *, seed: int) -> None:
        self.digests: Mapping[UnitIndex, bytes] = {}
        self._training, self._replay, self._seed = training, replay, seed
        self._computing: asyncio.Task[None] | None = None
        self._stopped = threading.Event()

    def begin(self, sample: Sample, unit: UnitIndex, ahead: "asyncio.Task[object] | None") -> None:
        """Start computing a unit.

        Args:
            sample: The round's minibatch.
            unit: The unit.
            ahead: Concurrent collection, which goes first as both use the same kernels.
        """
        self._stopped.clear()
        self._computing = asyncio.create_task(self._compute(sample, unit, ahead))

    async def end(self) -> None:
        """Cancel an unfinished computation before the parameters change."""
        if self._computing is not None:
            self._stopped.set()
            await asyncio.wait({self._computing})
            self._computing.result()
            self._computing = None

    async def _compute(
        self, sample: Sample, unit: UnitIndex, ahead: "asyncio.Task[object] | None"
    ) -> None:
        try:
            if ahead is not None:
                await asyncio.wait({ahead})
            self._check_cancelled()
            problem = self._training.problem
            fetched = await self._replay.get_sample(
                sample_message(sample), row_size=problem.row_size, items=problem.items_of([unit])
            )
            digest = await asyncio.to_thread(self._digest, fetched.rows, unit, sample.iteration)
            self._check_cancelled()  # finished too late, it would count for the next iteration
        except FullrankError as error:
            log.debug("recomputation_dropped iteration=%d reason=%s", sample.iteration, error)
            return
        self.digests = {unit: digest}
        log.debug("recomputed iteration=%d unit=%d", sample.iteration, unit)

    def _digest(self, batch: FloatArray, unit: UnitIndex, iteration: int) -> bytes:
        updates = self._training.algorithm.gradients.compute(
            batch, [unit], iteration=iteration, check_cancelled=self._check_cancelled
        )
        report_of = reporter_of(self._training.problem, seed=self._seed)
        return report_of(dict(updates)[unit])

    def _check_cancelled(self) -> None:
        if self._stopped.is_set():
            raise Cancelled("the round is decided")

    def take(self) -> Mapping[UnitIndex, bytes]:
        """The digests computed for the open round; none are left for the next."""
        digests, self.digests = self.digests, {}
        return digests
