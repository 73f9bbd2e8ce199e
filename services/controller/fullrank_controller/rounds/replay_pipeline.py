"""Collection: play transitions, possibly ahead of their iteration, and append them to replay."""

import asyncio
import logging
from typing import Protocol

from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, RunTerm
from fullrank.config.tree import RunConfig
from fullrank.replay.samplers import Sample
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Acknowledged
from fullrank.training.rollouts import Collected
from fullrank.wiring import Training, capacity_of, spare_rows
from fullrank_controller.identity import RunIdentity
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)


class TransitionTable(Protocol):
    """The run's table, in a replay service or in this process."""

    async def open_table(
        self, *, row_size: int, capacity: int, head: int, run_term: RunTerm
    ) -> tuple[int, int]:
        """Open the table, which then ends at ``head`` or before; returns (tail, head).

        Raises:
            StaleTerm: This term has opened the table already, or a later one has.
        """

    async def append(self, first_position: int, rows: FloatArray) -> int:
        """Store rows at ``first_position``; returns the acknowledged head.

        Raises:
            StaleTerm: Another controller has opened the table since.
        """


class ReplayPipeline:
    """Plays a run's transitions ahead, appends them to its table and samples them.

    Args:
        config: The resolved configuration.
        identity: The run.
        training: Plays, one collection at a time.
        table: The run's table.
        event_log: Receives acknowledged positions.
        watchdog: Observes playing.

    Attributes:
        head: One past the last transition that replay has acknowledged.
    """

    def __init__(
        self,
        config: RunConfig,
        identity: RunIdentity,
        training: Training,
        table: TransitionTable,
        *,
        event_log: EventLog,
        watchdog: Watchdog,
    ) -> None:
        self._identity, self._training, self._table = identity, training, table
        self._capacity = capacity_of(config, training)
        self._spare_rows = spare_rows(config, training)
        self._event_log, self._watchdog = event_log, watchdog
        self._playing: dict[int, asyncio.Task[Collected]] = {}
        self.head = self._tail = 0

    async def open(self, head: int) -> None:
        """Open the table at ``head``, and warm it up if it is empty."""
        self._tail, held = await self._table.open_table(
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
            held = await self._table.append(held, rows)
        self._acknowledge(held)

    @property
    def ahead(self) -> "asyncio.Task[Collected] | None":
        """The last collection that was begun and is not appended yet, or None."""
        return self._playing[max(self._playing)] if self._playing else None

    def begin(self, iteration: int) -> "asyncio.Task[Collected]":
        """Start playing for an iteration with the current parameters, unless that was done."""
        if iteration not in self._playing:
            keyed = self._training.collector.keyed
            if keyed is not None:
                keyed.begin(iteration)
            self._playing[iteration] = asyncio.create_task(self._play(iteration, self.ahead))
        return self._playing[iteration]

    async def _play(self, iteration: int, before: "asyncio.Task[Collected] | None") -> Collected:
        """Play an iteration, after the one before."""
        if before is not None:
            await asyncio.wait({before})
        return await asyncio.to_thread(self._training.collector.collect, iteration)

    async def collect(self, iteration: int) -> Collected:
        """The iteration's transitions, once replay has acknowledged them."""
        playing = self.begin(iteration)
        with self._watchdog.phase("playing"):
            collected = await asyncio.shield(playing)
        del self._playing[iteration]
        reach("transitions.played")
        self._acknowledge(await self._table.append(self.head, collected.rows))
        reach("transitions.appended")
        return collected

    def _acknowledge(self, head: int) -> None:
        self.head = head
        self._event_log.append(Acknowledged(term=self._identity.term, head=head))

    async def finish_playing(self) -> None:
        """Return when no collection is being played."""
        if self._playing:
            with self._watchdog.phase("playing"):
                await asyncio.wait(self._playing.values())

    def sample(self, iteration: int) -> Sample:
        """The iteration's minibatch, drawn from acknowledged transitions."""
        tail = max(self._tail, self.head - self._capacity)
        return self._training.trainer.sample(iteration, tail=tail, head=self.head)
