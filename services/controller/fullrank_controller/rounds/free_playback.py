"""Free collection: accept each block when it comes, and let an iteration draw once enough have."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from fullrank.common.failpoints import reach
from fullrank.net.replay_client import ReplayClient
from fullrank.replay.pace import DrawWindow, Reach
from fullrank.replay.staging import AcceptedBlock, Grant
from fullrank.training.block_collection import FreeCollection
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey
from fullrank.training.episodes import Outcomes
from fullrank.training.rollouts import Collected
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.collectors.free_pool import FreePool
from fullrank_controller.rounds.block_audit import BlockAudit
from fullrank_controller.rounds.playback import Playback

log = logging.getLogger(__name__)

KEPT_EPISODES = 10_000
"""Episodes whose returns are kept for the next iteration's statistics. Further ones replace the
oldest, so that what containers report while no iteration begins takes bounded memory."""

AHEAD = 2
"""Blocks that are granted for each collector: one is played while the other is accepted."""

PATIENCE_S = 5.0
"""Longest wait for episodes before the run says what it waits for."""


class FreePlayback(Playback):
    """Lets every collector play block after block, and draws from those that were accepted.

    For each collector ``AHEAD`` blocks are open, which bounds those that wait for the pace.
    Parameters are published once the update that made them is durable: a version names the same
    parameters in every term of the run.

    Args:
        collection: Publishes, and tells what an iteration draws from.
        table: The run's table.
        pool: The collectors.
        grant: What they may stage in a block.
        audit: Plays drawn blocks again before they are accepted.
        window: Makes the window of draws from the iteration, the head of the table and the accepted
            episodes, None for an empty table.
    """

    draws_again = False

    def __init__(
        self,
        collection: FreeCollection,
        table: ReplayClient,
        pool: FreePool,
        grant: Grant,
        *,
        audit: BlockAudit,
        window: Callable[[int, int, int | None], DrawWindow],
    ) -> None:
        self._collection, self._table, self._pool, self._grant = collection, table, pool, grant
        self._audit = audit
        self._make_window, self._progress = window, pool.progress
        self._window: DrawWindow | None = None
        self._unpublished: PlayTerms | None = None
        self._blocks = 0  # opened in this term
        self._playing = set[asyncio.Task[None]]()
        self._failure: Exception | None = None
        self._moved = asyncio.Condition()
        self._accepting = False
        """A block is being accepted. The condition is free meanwhile: whoever waits for it takes it
        back before a cancellation ends the wait, and replay may be away for long."""
        self._offered = list[tuple[int, int]]()
        """Rows and episodes of the blocks that wait to be accepted."""
        self._finished: deque[Outcomes] = deque()
        self._kept = 0  # episodes of these

    async def store(self, iteration: int, first: int) -> tuple[Collected, int]:
        """Publish the current parameters; return once the iteration may draw."""
        window = self._window or self._opened(iteration, first)
        window.asked()
        self._unpublished = self._collection.begin(iteration)
        self.committed(self._progress.committed)
        async with self._moved:
            self._moved.notify_all()
        reached = await self._drawn(window)
        self._pool.pause(oldest=window.oldest)
        reach("draw.reached")
        outcomes, self._kept = list(self._finished), 0
        self._finished.clear()
        return self._collection.drawn(iteration, reached, outcomes), reached.head

    async def store_again(
        self, iteration: int, first: int, statistics: Mapping[str, float | None]
    ) -> tuple[None, int]:
        """Go on after a committed iteration, whose blocks are in the table."""
        self._collection.repeated(iteration, statistics)
        return None, first

    def _opened(self, iteration: int, head: int) -> DrawWindow:
        """Open the window of this term, and let collectors play."""
        episodes = self._collection.episodes_before(iteration) if head else None
        window = self._make_window(iteration, head, episodes)
        self._window, self._pool.changed = window, self._fill
        self._fill()
        return window

    def committed(self, iterations: int) -> None:
        """Publish parameters whose update is durable, unless that was done."""
        play, window = self._unpublished, self._window
        if play is not None and window is not None and play.publication.version <= iterations:
            self._unpublished = None
            self._pool.publish(play, oldest=window.oldest)

    async def _drawn(self, window: DrawWindow) -> Reach:
        """Draw once the due episodes are accepted."""
        waited = False
        while (reached := await self._soon_drawn(window)) is None:
            said = f"waiting for {window.missing} episodes: {self._pool.waits_for()}"
            self._progress.stall(said)
            if not waited:
                log.warning("stalled reason=%s", self._progress.message)
            waited = True
        if waited:
            self._progress.run()
        return reached

    async def _soon_drawn(self, window: DrawWindow) -> Reach | None:
        """Draw within a while, between two acceptances; None if too few episodes are accepted."""
        try:
            async with asyncio.timeout(PATIENCE_S), self._moved:
                await self._moved.wait_for(
                    lambda: self._failure or not (window.missing or self._ages_others(window))
                )
                if self._failure is not None:
                    raise self._failure
                return window.draw()
        except TimeoutError:
            return None

    def _ages_others(self, window: DrawWindow) -> bool:
        """True if a draw would age blocks that are being accepted, or may be next."""
        may = (window.admits(rows=rows, episodes=count) for rows, count in self._offered)
        return self._accepting or any(may)

    def _fill(self) -> None:
        """Keep ``AHEAD`` blocks open for each collector."""
        while len(self._playing) < AHEAD * len(self._pool.eligible) and self._failure is None:
            block = asyncio.create_task(
                self._play(BlockKey(self._pool.identity.term, self._blocks))
            )
            self._blocks += 1
            self._playing.add(block)
            block.add_done_callback(self._ended)

    def _ended(self, block: "asyncio.Task[None]") -> None:
        self._playing.discard(block)
        if not block.cancelled():
            self._fill()

    async def _play(self, key: BlockKey) -> None:
        """Let a block be played until it is accepted, and wake the iteration that waits for it."""
        try:
            report = None
            while report is None or not await self._taken(report):
                await self._table.grant(key.iteration, range(key.block, key.block + 1), self._grant)
                report = await self._pool.play(key)
        except Exception as error:  # of the table; it ends the run
            self._failure = self._failure or error
            async with self._moved:
                self._moved.notify_all()

    async def _taken(self, report: BlockReport) -> bool:
        """Take a block as soon as iterations are not too far behind, unless an audit refutes it."""
        if await self._audit.refuted([report]):
            return False
        window = self._window
        assert window is not None  # opened
        if report.rows:
            await self._turn(window, report)
            try:
                if not await self._accepted(window, report):
                    return False
                self._finish(report.outcomes)  # before the iteration that draws it is woken
            finally:
                self._accepting = False
                async with self._moved:
                    self._moved.notify_all()
        else:  # its grant ends
            (term, block), head = report.key, window.head
            await self._table.accept(term, head, [], rows=0, first=block)
            self._finish(report.outcomes)
        return True

    def _finish(self, outcomes: Outcomes) -> None:
        """Keep the outcomes of a block for the next draw, the newest ones if they are many."""
        self._finished.append(outcomes)
        self._kept += len(outcomes.lengths)
        while len(self._finished) > 1 and self._kept > KEPT_EPISODES:
            self._kept -= len(self._finished.popleft().lengths)

    async def _turn(self, window: DrawWindow, report: BlockReport) -> None:
        """Wait until a block may be accepted, one at a time."""
        self._offered.append(offer := (report.rows, len(report.staged)))
        try:
            async with self._moved:
                await self._moved.wait_for(
                    lambda: not self._accepting and window.admits(rows=offer[0], episodes=offer[1])
                )
                self._accepting = True
        finally:
            self._offered.remove(offer)

    async def _accepted(self, window: DrawWindow, report: BlockReport) -> bool:
        """Accept a block at the head; False if it has to be played again."""
        if report.is_void:  # since it was audited
            return False
        if report.version < window.oldest:
            self._pool.refuse(report)
            return False
        (term, block), head = report.key, window.head
        unstaged = await self._table.accept(
            term, head, [report.staged_digest], rows=report.rows, first=block
        )
        if unstaged is not None and unstaged.head != head + report.rows:
            if unstaged.granted:
                self._pool.distrust([report])
            elif unstaged.head > head:  # replay has ended while it stored the block
                await self._table.truncate(head)
            return False
        episodes, digest = len(report.staged), report.rows_digest.hex()
        window.accept(AcceptedBlock(term, block, report.version, report.rows, episodes, digest))
        return True

    async def end(self) -> None:
        """Dismiss the collectors, and cancel the blocks that they play."""
        self._pool.end()
        playing = list(self._playing)
        for block in playing:
            block.cancel()
        await asyncio.gather(*playing, return_exceptions=True)
        await self._audit.end()
