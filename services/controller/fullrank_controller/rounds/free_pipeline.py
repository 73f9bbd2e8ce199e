"""Free collection: wait until replay holds enough episodes, and draw from its content."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from fullrank.common.failpoints import reach
from fullrank.config.tree import RunConfig
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.draw_window import Reach
from fullrank.replay.samplers import Sample
from fullrank.runs.ending import rows_lost
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Acknowledged
from fullrank.training.block_collection import FreeCollection
from fullrank.training.block_player import PlayTerms
from fullrank.training.rollouts import Collected
from fullrank.wiring import Training, arrival_rules, capacity_of, spare_rows
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.identity import RunIdentity
from fullrank_controller.progress import RunProgress

log = logging.getLogger(__name__)


class FreePipeline:
    """Publishes parameters to collectors, and samples the episodes that they wrote to replay.

    Parameters are published once the update that made them is durable: a version names the same
    parameters in every term of the run.

    Args:
        config: The resolved configuration.
        identity: The run.
        training: Parameters and samples.
        collection: Its free collection.
        table: The run's table.
        event_log: Receives acknowledged positions.
        progress: Shows the reason of a wait and the number of durable iterations.
        lost: Takes the caveat of rows that replay has lost.
        pool: The collectors.

    Attributes:
        head: One past the last position from which an iteration may draw.
    """

    ahead = None
    """No collection is played in this process."""

    def __init__(
        self,
        config: RunConfig,
        identity: RunIdentity,
        training: Training,
        collection: FreeCollection,
        table: ReplayClient,
        *,
        event_log: EventLog,
        progress: RunProgress,
        lost: Callable[[str], None],
        pool: FreePool,
    ) -> None:
        self._config, self._identity, self._training = config, identity, training
        self._collection, self._table = collection, table
        self._event_log, self._progress, self._pool = event_log, progress, pool
        self._lost = lost
        self._capacity = capacity_of(config, training)
        self._spare_rows = spare_rows(config, training)
        self._reach: Reach | None = None
        self._unpublished: PlayTerms | None = None
        self.head = 0

    async def open(self, head: int, *, resumes_at: int) -> None:
        """Open the table, which keeps all acknowledged episodes."""
        tail, held = await self._table.open_table(
            row_size=self._training.problem.row_size,
            capacity=self._capacity + self._spare_rows,
            head=head,
            run_term=self._identity.run_term,
            arrival=arrival_rules(self._config, self._training.problem, first=resumes_at),
        )
        if held == 0:
            await asyncio.to_thread(self._training.collector.require_one_team)
        if held < head:
            lost = rows_lost(iteration=resumes_at, expected=head, tail=tail, head=held)
            self._lost(lost)
        self._acknowledge(held)

    def begin(self, iteration: int) -> None:
        """Do nothing: collectors begin by themselves."""

    async def collect(self, iteration: int) -> Collected:
        """Publish the current parameters; return once the iteration may draw."""
        self._unpublished = self._collection.begin(iteration)
        self.committed(self._progress.committed)
        self._reach = reached = await self._drawn(iteration)
        reach("draw.reached")
        self._acknowledge(reached.head)
        return self._collection.drawn(iteration, reached, self._pool.take_written())

    async def collect_again(self, iteration: int, statistics: Mapping[str, float | None]) -> None:
        """Go on after a committed iteration, whose episodes are in the table."""
        self._collection.repeated(iteration, statistics)

    def committed(self, iterations: int) -> None:
        """Publish parameters whose update is durable, unless that was done."""
        play = self._unpublished
        if play is not None and play.publication.version <= iterations:
            self._unpublished = None
            self._pool.publish(play)

    async def _drawn(self, iteration: int) -> Reach:
        """Wait until the table holds the episodes that are due."""
        waited = False
        while True:
            answer = await self._table.await_draw(iteration, newest=self._capacity)
            if isinstance(answer, Reach):
                if waited:
                    self._progress.run()
                return answer
            self._progress.stall(f"waiting for {answer} episodes: {self._pool.waits_for()}")
            if not waited:
                log.warning("stalled reason=%s", self._progress.message)
            waited = True

    def _acknowledge(self, head: int) -> None:
        self.head = head
        self._event_log.append(Acknowledged(term=self._identity.term, head=head))

    def foresee(self, iteration: int) -> None:
        """Foresee no sample: the rows to draw from depend on the collectors."""

    async def finish_playing(self) -> None:
        """Return at once: this process does not play."""

    async def end(self) -> None:
        """Return: collectors learn of the end by that of their streams."""

    def sample(self, iteration: int) -> Sample:
        """The iteration's minibatch, drawn from the rows in its reach."""
        assert self._reach is not None  # collected
        return self._training.trainer.sample(
            iteration, tail=self._reach.tail, head=self._reach.head
        )
