"""Collection: play transitions, possibly ahead of their iteration, and append them to replay."""

import asyncio
import logging

from fullrank.common.failpoints import reach
from fullrank.config import RunConfig
from fullrank.replay import Sample
from fullrank.rpc.clients import ReplayClient
from fullrank.runs.event_log import Acknowledged, EventLog
from fullrank.training.rollouts import Collected
from fullrank.wiring import Training, capacity_of
from fullrank_controller.identity import RunIdentity
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)


class Collector:
    """Plays a run's transitions and appends them to its table.

    Args:
        config: The resolved configuration.
        identity: The run.
        training: Plays, one collection at a time, with its current parameters.
        replay: Client of the replay service.
        event_log: Receives acknowledged positions.
        spare_rows: Rows that the table holds beyond the capacity that samples are drawn from.
        watchdog: Observes playing.

    Attributes:
        ahead: A collection that was begun and is not appended yet, or None.
        head: One past the last transition that replay has acknowledged.
    """

    def __init__(
        self,
        config: RunConfig,
        identity: RunIdentity,
        training: Training,
        replay: ReplayClient,
        *,
        event_log: EventLog,
        spare_rows: int,
        watchdog: Watchdog,
    ) -> None:
        self._identity, self._training, self._replay = identity, training, replay
        self._capacity, self._spare_rows = capacity_of(config, training), spare_rows
        self._event_log, self._watchdog = event_log, watchdog
        self.ahead: asyncio.Task[Collected] | None = None
        self.head = self._tail = 0

    async def open(self, head: int) -> None:
        """Open the table at ``head``, and warm it up if it is empty."""
        self._tail, held = await self._replay.open_table(
            row_size=self._training.collector.layout.row_size,
            capacity=self._capacity + self._spare_rows,
            head=head,
            run_term=self._identity.run_term,
        )
        if held != head:
            log.warning("replay_lost expected=%d held=%d tail=%d", head, held, self._tail)
        if held == self._tail:
            with self._watchdog.phase("warming up"):
                rows = await asyncio.to_thread(self._training.collector.warm_up)
            reach("warmup.played")
            held = await self._replay.append(held, rows)
        self._acknowledge(held)

    def begin(self, iteration: int) -> "asyncio.Task[Collected]":
        """Start playing for an iteration, unless a collection was already begun."""
        if self.ahead is None:
            playing = asyncio.to_thread(self._training.collector.collect, iteration)
            self.ahead = asyncio.create_task(playing)
        return self.ahead

    async def collect(self, iteration: int) -> Collected:
        """The iteration's transitions, once replay has acknowledged them."""
        playing = self.begin(iteration)
        with self._watchdog.phase("playing"):
            collected = await asyncio.shield(playing)
        self.ahead = None
        reach("transitions.played")
        self._acknowledge(await self._replay.append(self.head, collected.rows))
        reach("transitions.appended")
        return collected

    def _acknowledge(self, head: int) -> None:
        self.head = head
        self._event_log.append(Acknowledged(term=self._identity.term, head=head))

    async def finish_playing(self) -> None:
        """Return when no collection is being played."""
        if self.ahead is not None:
            with self._watchdog.phase("playing"):
                await asyncio.wait({self.ahead})

    def sample(self, iteration: int) -> Sample:
        """The iteration's minibatch, drawn from acknowledged transitions."""
        tail = max(self._tail, self.head - self._capacity)
        return self._training.trainer.sample(iteration, tail=tail, head=self.head)
