"""Collection: transitions are played, perhaps ahead of their iteration, and held by replay."""

import asyncio
import logging

from fullrank.common.failpoints import reach
from fullrank.config import RunConfig
from fullrank.replay import Sample
from fullrank.rpc.clients import ReplayClient
from fullrank.runs.event_log import Acknowledged
from fullrank.training.rollouts import Collected
from fullrank.training.trainer import Training
from fullrank.wiring import capacity_of
from fullrank_controller.run_state import Run
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)


class Collecting:
    """Plays a run's transitions and appends them to its table.

    Args:
        config: The resolved configuration.
        run: Told what replay has acknowledged.
        training: Plays, one collection at a time, with its parameters as they are then.
        replay: Client of the replay service.
        spare_rows: Rows that the table holds beyond the capacity that samples come from.
        watchdog: Told what is going on.

    Attributes:
        ahead: The collection that is played, or was and is not appended yet.
        head: One past the last transition that replay has acknowledged.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        training: Training,
        replay: ReplayClient,
        *,
        spare_rows: int,
        watchdog: Watchdog,
    ) -> None:
        self._run, self._training, self._replay = run, training, replay
        self._capacity, self._spare_rows = capacity_of(config, training), spare_rows
        self._watchdog = watchdog
        self.ahead: asyncio.Task[Collected] | None = None
        self.head = self._tail = 0

    async def open(self, head: int) -> None:
        """Open the table at ``head``; warm it up when it is empty."""
        self._tail, held = await self._replay.open_table(
            row_size=self._training.layout.row_size,
            capacity=self._capacity + self._spare_rows,
            head=head,
            run_term=self._run.run_term,
        )
        if held != head:
            log.warning("replay_lost expected=%d held=%d tail=%d", head, held, self._tail)
        if held == self._tail:
            with self._watchdog.phase("warming up"):
                rows = await asyncio.to_thread(self._training.warm_up)
            reach("warmup.played")
            held = await self._replay.append(held, rows)
        self._acknowledge(held)

    def begin(self, iteration: int) -> None:
        """Start playing for an iteration, unless something is played or waits already."""
        if self.ahead is None:
            playing = asyncio.to_thread(self._training.collect, iteration)
            self.ahead = asyncio.create_task(playing)

    async def collect(self, iteration: int) -> Collected:
        """The iteration's transitions, acknowledged by replay before they count."""
        self.begin(iteration)
        assert self.ahead is not None
        with self._watchdog.phase("playing"):
            collected = await asyncio.shield(self.ahead)
        self.ahead = None
        reach("transitions.played")
        self._acknowledge(await self._replay.append(self.head, collected.rows))
        reach("transitions.appended")
        return collected

    def _acknowledge(self, head: int) -> None:
        self.head = self._run.acknowledged = head
        self._run.event_log.append(Acknowledged(term=self._run.term, head=head))

    async def played(self) -> None:
        """Return when nothing is played any more."""
        if self.ahead is not None:
            with self._watchdog.phase("playing"):
                await asyncio.wait({self.ahead})

    def sample(self, iteration: int) -> Sample:
        """The iteration's minibatch, out of what is acknowledged."""
        tail = max(self._tail, self.head - self._capacity)
        return self._training.sample(iteration, tail=tail, head=self.head)
