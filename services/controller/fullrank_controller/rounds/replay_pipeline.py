"""Collection: append what is played to replay, and sample minibatches from it."""

import asyncio
from collections.abc import Callable, Mapping

from fullrank.common.failpoints import reach
from fullrank.replay.samplers import Sample
from fullrank.runs.ending import rows_lost
from fullrank.runs.events import Acknowledged
from fullrank.training.rollouts import Collected
from fullrank.wiring.training import capacity_of, drawn_rows, spare_rows
from fullrank_controller.rounds.playback import CollectTask, Playback, TransitionTable
from fullrank_controller.term import Term


class ReplayPipeline:
    """Plays a run's transitions ahead, appends them to its table and samples them.

    Args:
        term: The open parts of the term.
        table: The run's table.
        playback: Plays.
        holds: Whether the table holds a sample's rows; given where playing shares nothing with
            computing and every collection has as many rows, it lets both go on at once.
        report: Takes the progress of the warm-up, from any thread, and an empty text after it; by
            default the run's status shows it.

    Attributes:
        head: One past the last transition that replay has acknowledged.
    """

    def __init__(
        self,
        term: Term,
        table: TransitionTable,
        playback: Playback,
        *,
        holds: Callable[[Sample], bool] | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        config, training, run = term.config, term.training, term.run
        self._training, self._table, self._playback = training, table, playback
        self._identity, self._event_log, self._watchdog = run.identity, run.event_log, term.watchdog
        self._capacity = capacity_of(config, training)
        self._spare_rows, self._drawn = spare_rows(config, training), drawn_rows(config, training)
        self._lost, self._stored, self._holds = term.keep_caveat, term.store.rows, holds
        self._report = report or run.progress.warming
        self._beside: CollectTask | None = None
        """Plays and appends the transitions of an iteration whose updates are being computed."""
        self.head = self._tail = self._first = 0

    async def open(self, head: int, *, resumes_at: int) -> None:
        """Open the table at ``head``, and warm it up if it is empty."""
        self._tail, held = await self._table.open_table(
            row_size=self._training.collector.layout.row_size,
            capacity=self._capacity + self._spare_rows,
            head=head,
            run_term=self._identity.run_term,
        )
        reason = ""
        if self._lacks(head, held) and self._stored is not None:
            self._tail, held, reason = await self._stored.recover(
                self._tail, held, head=head, report=self._report
            )
        if self._lacks(head, held):
            lost = rows_lost(iteration=resumes_at, expected=head, tail=self._tail, head=held)
            self._lost(f"{lost}; {reason}" if reason else lost)
            if self._stored is not None:
                await self._stored.lost()
            if held == self._tail:  # positions begin anew
                self._tail, held = await self._table.truncate(0)
        if self._stored is not None:
            self._stored.opened(self._tail, held)
        if held == self._tail:
            with self._watchdog.phase("warming up"):
                rows = await asyncio.to_thread(self._training.collector.warm_up, self._report)
            self._report("")
            reach("warmup.played")
            held = await self._table.append(held, rows)
        self._acknowledge(held)

    def _lacks(self, head: int, held: int) -> bool:
        """Tell whether the table, which ends at ``held``, lacks rows before ``head``."""
        oldest = max(0, head - self._drawn)
        evicted = self._tail > oldest and (self._playback.draws_again or self._tail == held)
        return held < head or evicted

    @property
    def ahead(self) -> CollectTask | None:
        """Return the last collection that this process plays, or None."""
        return self._playback.ahead

    async def play(self, iteration: int) -> None:
        """Play for an iteration; return once nothing reads the current parameters any more.

        A failure is raised here, so that they are not stepped: a resumed run plays with them.
        """
        await self._playback.play(iteration)

    def foresee(self, iteration: int) -> Sample | None:
        """Return the iteration's minibatch, if it draws no row that is still to be played.

        These rows are then collected beside.
        """
        if self._holds is None or self._training.problem.data.epochs:
            return None
        sample = self.sample(iteration, head=self.head + self._training.collector.collection.rows)
        if not self._holds(sample):
            return None
        self._beside = asyncio.create_task(self._collect(iteration))
        return sample

    async def collect(self, iteration: int) -> Collected:
        """Return the iteration's transitions, once replay has acknowledged them."""
        beside, self._beside = self._beside, None
        return await (beside or self._collect(iteration))

    async def collect_again(
        self, iteration: int, statistics: Mapping[str, float | None]
    ) -> Collected | None:
        """Collect for a committed iteration once more, which gives the same rows."""
        self._training.collector.publish(iteration)
        collected, head = await self._playback.store_again(iteration, self.head, statistics)
        self._first = self.head
        self._acknowledge(head)
        return collected

    async def _collect(self, iteration: int) -> Collected:
        self._training.collector.publish(iteration)
        collected, head = await self._playback.store(iteration, self.head)
        if self._stored is not None:
            await self._stored.take(head)
        self._first = self.head
        self._acknowledge(head)
        reach("transitions.appended")
        return collected

    def _acknowledge(self, head: int) -> None:
        self.head = head
        self._event_log.append(Acknowledged(term=self._identity.term, head=head))

    def committed(self, iterations: int) -> None:
        """Take note of the number of durable iterations."""
        self._playback.committed(iterations)

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
        return self._training.trainer.sample(iteration, tail=tail, head=head, first=self._first)
