"""Collectors that play keyed blocks, and the iterations that wait for these."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from fullrank.common.deadlines import FACTOR
from fullrank.common.errors import EnvironmentFailed
from fullrank.config.tree import ControllerSettings
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey, BlockScheduler, deadline_of
from fullrank_controller.collectors.block_orders import CollectorWork, unplayed
from fullrank_controller.collectors.blocks_in import BlockReport
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member, excluded
from fullrank_controller.membership.roster import Roster

log = logging.getLogger(__name__)

RECENT = 200
"""Number of blocks whose durations give the deadline."""


class BlockDeadline:
    """Age at which a block is overdue, and the timer that goes off when the next one is.

    Args:
        settings: Deadlines.
        overdue: Called when a block is overdue.
    """

    def __init__(self, settings: ControllerSettings, overdue: Callable[[], None]) -> None:
        self._settings, self._overdue = settings, overdue
        self._durations_s: deque[float] = deque(maxlen=RECENT)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def age_s(self) -> float:
        """Age beyond which a block is overdue."""
        settings = self._settings
        return deadline_of(
            self._durations_s,
            first_s=settings.deadline_s,
            factor=FACTOR,
            least_s=settings.least_deadline_s,
        )

    def record(self, duration_s: float) -> None:
        """Record how long a block took."""
        self._durations_s.append(duration_s)

    def watch(self, begun_at: float | None, *, now: float) -> None:
        """Set the timer to the block assigned at this time, unless it is overdue already."""
        self.stop()
        if begun_at is not None and begun_at + self.age_s > now:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(begun_at + self.age_s, self._overdue)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()


class _Waiting(NamedTuple):
    """An iteration that waits for its blocks."""

    keys: Sequence[BlockKey]
    play: PlayTerms
    complete: "asyncio.Future[list[BlockReport]]"


@dataclass(eq=False, kw_only=True)
class KeyedPool(CollectorPool):
    """Plays iterations on collectors; each block is taken once, from the first that returns it.

    Attributes:
        learners: Attached learners, which hold the numerics of the run.
        scheduler: Blocks without an answer, and their players.
        awaited: Iteration that cannot go on without its blocks; None while there is none.
        lost: Collectors that were lost with each block that is not played.
    """

    learners: Roster
    scheduler: BlockScheduler[BlockReport] = field(default_factory=BlockScheduler, init=False)
    awaited: int | None = field(default=None, init=False)
    lost: Counter[BlockKey] = field(default_factory=Counter, init=False)
    _iterations: dict[int, _Waiting] = field(default_factory=dict, init=False)
    _stalled: bool = field(default=False, init=False)

    @cached_property
    def _deadline(self) -> BlockDeadline:
        return BlockDeadline(self.settings, self.assign)

    @property
    def waiting(self) -> Sequence[BlockKey]:
        """Return the blocks without an answer, ascending."""
        return self.scheduler.waiting

    async def play(
        self, iteration: int, keys: Sequence[BlockKey], play: PlayTerms
    ) -> list[BlockReport]:
        """Return the reports on blocks of an iteration, once collectors have played all of them.

        Raises:
            EnvironmentFailed: A block failed too often.
        """
        self.scheduler.open(keys)
        complete: asyncio.Future[list[BlockReport]] = asyncio.get_running_loop().create_future()
        self._iterations[iteration] = _Waiting(keys, play, complete)
        self.assign()
        try:
            return await complete
        finally:
            del self._iterations[iteration]

    @contextmanager
    def awaiting(self, iteration: int) -> Iterator[None]:
        """Take note that the run waits for the blocks of an iteration in the body."""
        clock = asyncio.get_running_loop().time
        self.awaited, began_at = iteration, clock()
        try:
            yield
        finally:
            self.awaited = None
            self.totals.awaited_s += clock() - began_at

    def end(self) -> None:
        """Assign no more."""
        super().end()
        self._deadline.stop()

    def assign(self) -> None:
        """Give idle collectors blocks, now and when a block is overdue."""
        if self._ended:
            return
        self._attach()
        now, deadline_s = asyncio.get_running_loop().time(), self._deadline.age_s
        members = {member.learner: member for member in self.eligible}
        for collector, key in self.scheduler.assign(now, deadline_s=deadline_s):
            if (iteration := self._iterations.get(key.iteration)) is None:
                continue  # the run has given it up, and ends
            member, play = members[collector], iteration.play
            self._order(member, key, play, deadline_s=deadline_s, oldest=play.publication.version)
            again = len(self.scheduler.holders(key)) > 1
            self.eligible[member].reassigned += again
            self.totals.reassigned += again
        self._deadline.watch(self.scheduler.begun_at(), now=now)
        self._show()

    def _attach(self) -> None:
        """Let the ready collectors of the run's numerics play."""
        self.roster.numerics = self.learners.numerics
        if self.roster.numerics is None:
            return
        for member in self.roster.eligible:
            if member not in self.eligible:
                self.eligible[member] = CollectorWork()
                self.scheduler.attach(member.learner)

    def lose(self, member: Member, block: BlockKey | None) -> None:
        """Forget a collector; its block waits for another one."""
        if block is not None and block in self.scheduler.waiting:
            self.lost[block] += 1
        self.scheduler.detach(member.learner)

    def answered(self, member: Member, report: BlockReport) -> None:
        """Take a report of a collector; the first one of a block counts, another one is named."""
        key, now = report.key, asyncio.get_running_loop().time()
        first = self.scheduler.answer(member.learner, key, report)
        self.lost.pop(key, None)
        self._deadline.record(now - self.eligible[member].assigned_at)
        if first is not None:
            caveat = (
                f"collectors {first} and {member.learner} played block {key.block} of "
                f"iteration {key.iteration} differently; the answer of collector "
                f"{first} was taken"
            )
            self.progress.record_caveat("collectors", caveat)
            log.warning("blocks_differ %s", caveat)
        waiting = self._iterations.get(key.iteration)
        if waiting is not None and not waiting.complete.done():
            blocks = self.scheduler.take(waiting.keys)
            if blocks is not None:
                waiting.complete.set_result(blocks)
        self.assign()

    def failed(self, member: Member, key: BlockKey, reason: str) -> None:
        """Take note that a collector's environment raised; too many failures end run and pool."""
        try:
            self.scheduler.fail(member.learner, key, f"on {member.host}: {reason}")
        except EnvironmentFailed as error:
            self.end()
            for waiting in self._iterations.values():
                if not waiting.complete.done():
                    waiting.complete.set_exception(error)
            return
        self.assign()

    def _show(self) -> None:
        """Say what the run waits for while no collector can play."""
        roster = self.roster
        if self._iterations and not self.eligible:
            waits = f"{unplayed(self.scheduler.waiting)}, which waits for a collector"
            if self.progress.stall(f"{waits}{excluded(roster.members, roster.numerics)}"):
                log.warning("stalled reason=%s", self.progress.message)
            self._stalled = True
        elif self._stalled:
            self.progress.run()
            self._stalled = False

    def waits_for(self) -> str:
        """One line: the side that waits and the cause; empty once the run is finished."""
        keys, progress = self.scheduler.waiting, self.progress
        if progress.finished:
            return ""
        if not keys:
            return (
                f"{len(self.eligible)} collectors wait for the update of iteration "
                f"{progress.applied}"
            )
        first, blocks = keys[0], unplayed(keys)
        holders = self.scheduler.holders(first)
        who = f"collectors {holders}" if holders else "a collector"
        left = self.lost[first]
        lost = f"; {left} collectors were lost while they played it" if left else ""
        if self.awaited is None:
            return f"played ahead: {blocks}, with {who}{lost}"
        return f"the run waits for collectors: {blocks}, which waits for {who}{lost}"
