"""Collection: play transitions, possibly ahead of their iteration, and append them to replay."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

from fullrank.common.failpoints import reach
from fullrank.common.types import FloatArray, RunTerm
from fullrank.config.tree import RunConfig
from fullrank.replay.samplers import Sample
from fullrank.runs.ending import rows_lost
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Acknowledged
from fullrank.training.block_player import PlayTerms
from fullrank.training.keyed import KeyedRollout
from fullrank.training.rollouts import Collected
from fullrank.wiring import Training, capacity_of, spare_rows
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.identity import RunIdentity
from fullrank_controller.watchdog import Watchdog

CollectTask: TypeAlias = asyncio.Task[Collected]


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


class Playback:
    """Plays the collections of a run, possibly ahead of their iterations.

    Args:
        training: Plays, one collection at a time.
        watchdog: Observes playing.
        pool: Collectors that play; None: this process plays.
    """

    def __init__(
        self, training: Training, *, watchdog: Watchdog, pool: CollectorPool | None
    ) -> None:
        self._collector, self._watchdog, self._pool = training.collector, watchdog, pool
        self._playing: dict[int, CollectTask] = {}

    @property
    def ahead(self) -> CollectTask | None:
        """Return the last collection that this process plays, or None."""
        mine = self._playing if self._pool is None else {}
        return mine[max(mine)] if mine else None

    def begin(self, iteration: int) -> CollectTask:
        """Start playing for an iteration with the current parameters, unless that was done."""
        if iteration not in self._playing:
            keyed = self._collector.keyed
            play = keyed.begin(iteration) if keyed is not None else None
            before = self._playing.get(iteration - 1)
            self._playing[iteration] = asyncio.create_task(
                self._play(iteration, before)
                if self._pool is None or keyed is None or play is None
                else self._play_elsewhere(self._pool, keyed, iteration, play, before)
            )
        return self._playing[iteration]

    async def _play(self, iteration: int, before: CollectTask | None) -> Collected:
        """Play an iteration in this process, after the one before."""
        if before is not None:
            await asyncio.wait({before})
        began_at = asyncio.get_running_loop().time()
        collected = await asyncio.to_thread(self._collector.collect, iteration)
        return collected._replace(play_s=asyncio.get_running_loop().time() - began_at)

    async def _play_elsewhere(
        self,
        pool: CollectorPool,
        keyed: KeyedRollout,
        iteration: int,
        play: PlayTerms,
        before: CollectTask | None,
    ) -> Collected:
        """Let collectors play an iteration; iterations are joined in order."""
        began_at = asyncio.get_running_loop().time()
        blocks = await pool.play(iteration, play)
        played_s = asyncio.get_running_loop().time() - began_at
        if before is not None:
            await asyncio.wait({before})
        collected = await asyncio.to_thread(keyed.join, iteration, blocks)
        return collected._replace(play_s=played_s)

    async def played(self, iteration: int) -> Collected:
        """Return an iteration's transitions, once they are played."""
        playing, pool = self.begin(iteration), self._pool
        waits = self._watchdog.phase("playing") if pool is None else pool.awaiting(iteration)
        with waits:
            collected = await asyncio.shield(playing)
        del self._playing[iteration]
        return collected

    async def finish(self) -> None:
        """Return when this process plays no collection."""
        if self._playing and self._pool is None:
            with self._watchdog.phase("playing"):
                await asyncio.wait(self._playing.values())

    async def end(self) -> None:
        """Dismiss the collectors, and cancel the collections that they play."""
        if self._pool is not None:
            self._pool.end()
            for playing in self._playing.values():
                playing.cancel()
            await asyncio.gather(*self._playing.values(), return_exceptions=True)


class ReplayPipeline:
    """Plays a run's transitions ahead, appends them to its table and samples them.

    Args:
        config: The resolved configuration.
        identity: The run.
        training: Plays, one collection at a time.
        table: The run's table.
        event_log: Receives acknowledged positions.
        watchdog: Observes playing.
        lost: Takes the caveat of rows that replay has lost.
        pool: Collectors that play; None: this process plays.
        holds: Whether the table holds a sample's rows; given where playing shares nothing with
            computing and every collection has as many rows, it lets both go on at once.
        report: Takes the progress of the warm-up, from any thread, and an empty text after it.

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
        lost: Callable[[str], None],
        pool: CollectorPool | None = None,
        holds: Callable[[Sample], bool] | None = None,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._identity, self._training, self._table = identity, training, table
        self._capacity = capacity_of(config, training)
        self._spare_rows = spare_rows(config, training)
        self._event_log, self._watchdog, self._lost = event_log, watchdog, lost
        self._playback = Playback(training, watchdog=watchdog, pool=pool)
        self._report = report
        self._holds, self._rows = holds, config.environment.copies * config.collect.steps
        self._beside: CollectTask | None = None
        """Plays and appends the transitions of an iteration whose updates are being computed."""
        self.head = self._tail = 0

    async def open(self, head: int, *, resumes_at: int) -> None:
        """Open the table at ``head``, and warm it up if it is empty."""
        self._tail, held = await self._table.open_table(
            row_size=self._training.collector.layout.row_size,
            capacity=self._capacity + self._spare_rows,
            head=head,
            run_term=self._identity.run_term,
        )
        if held != head or self._tail > max(0, head - self._capacity):
            lost = rows_lost(iteration=resumes_at, expected=head, tail=self._tail, head=held)
            self._lost(lost)
        if held == self._tail:
            with self._watchdog.phase("warming up"):
                rows = await asyncio.to_thread(self._training.collector.warm_up, self._report)
            self._report("")
            reach("warmup.played")
            held = await self._table.append(held, rows)
        self._acknowledge(held)

    @property
    def ahead(self) -> CollectTask | None:
        """Return the last collection that this process plays, or None."""
        return self._playback.ahead

    def begin(self, iteration: int) -> None:
        """Start playing for an iteration with the current parameters, unless that was done."""
        self._playback.begin(iteration)

    def foresee(self, iteration: int) -> Sample | None:
        """Return the iteration's minibatch, if it draws no row that is still to be played.

        These rows are then collected beside.
        """
        if self._holds is None:
            return None
        sample = self.sample(iteration, head=self.head + self._rows)
        if not self._holds(sample):
            return None
        self._beside = asyncio.create_task(self._collect(iteration))
        return sample

    async def collect(self, iteration: int) -> Collected:
        """Return the iteration's transitions, once replay has acknowledged them."""
        beside, self._beside = self._beside, None
        return await (beside or self._collect(iteration))

    async def _collect(self, iteration: int) -> Collected:
        self._training.collector.publish(iteration)
        collected = await self._playback.played(iteration)
        reach("transitions.played")
        self._acknowledge(await self._table.append(self.head, collected.rows))
        reach("transitions.appended")
        return collected

    def _acknowledge(self, head: int) -> None:
        self.head = head
        self._event_log.append(Acknowledged(term=self._identity.term, head=head))

    def committed(self, iterations: int) -> None:
        """Do nothing: parameters are published with the blocks that use them."""

    async def finish_playing(self) -> None:
        """Return when this process plays no collection."""
        await self._playback.finish()

    async def end(self) -> None:
        """End playing and appending."""
        await self._playback.finish()
        if self._beside is not None:
            await asyncio.gather(self._beside, return_exceptions=True)
        await self._playback.end()

    def sample(self, iteration: int, *, head: int | None = None) -> Sample:
        """Return the iteration's minibatch.

        Args:
            iteration: Number of the iteration.
            head: One past the last transition to draw; by default ``head``, the acknowledged one.
        """
        head = self.head if head is None else head
        tail = max(self._tail, head - self._capacity)
        return self._training.trainer.sample(iteration, tail=tail, head=head)
