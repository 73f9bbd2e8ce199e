"""Attached collectors, the blocks assigned to them, and the iterations that wait for blocks."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from fullrank.common.deadlines import FACTOR
from fullrank.common.errors import EnvironmentFailed, InvalidContribution
from fullrank.config.tree import ControllerSettings
from fullrank.net.prometheus import Family, counter, gauge
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import BlockAssigned
from fullrank.training.block_player import PlayTerms
from fullrank.training.blocks import BlockKey, BlockPlan, BlockScheduler, deadline_of
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.block_orders import (
    BlockTotals,
    CollectorWork,
    OrderSender,
    member_status,
    one_line,
    pool_metrics,
    unplayed,
)
from fullrank_controller.collectors.blocks_in import BlockReport, block_report
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member, excluded
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

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


class CollectorPool:
    """Plays iterations on collectors; each block is taken once, from the first that returns it.

    Args:
        plan: Blocks of an iteration.
        settings: Deadlines.
        roster: Attached collectors.
        learners: Attached learners, which hold the numerics of the run.
        progress: Shows what the run waits for.
        event_log: Receives each block that is assigned.
        identity: The run; it fixes the layout of rows.
        agents: Number of agents, M.

    Attributes:
        plan: As given.
        roster: As given.
        eligible: Record of each collector that may play.
        scheduler: Blocks without an answer, and their players.
        totals: Blocks and times so far.
        awaited: Iteration that cannot go on without its blocks; None while there is none.
        lost: Collectors that were lost with each block that is not played.
    """

    def __init__(
        self,
        plan: BlockPlan,
        settings: ControllerSettings,
        *,
        roster: Roster,
        learners: Roster,
        progress: RunProgress,
        event_log: EventLog,
        identity: RunIdentity,
        agents: int,
    ) -> None:
        self.plan, self.roster = plan, roster
        self._learners, self._progress = learners, progress
        self._event_log, self._identity, self._agents = event_log, identity, agents
        self.scheduler: BlockScheduler[BlockReport] = BlockScheduler()
        self.totals = BlockTotals()
        self.awaited: int | None = None
        self.lost: Counter[BlockKey] = Counter()
        self.eligible: dict[Member, CollectorWork] = {}
        self._iterations: dict[int, _Waiting] = {}
        self._deadline = BlockDeadline(settings, self.assign)
        self._sender = OrderSender(write_s=settings.lost_after_s)
        self._stalled = self._ended = False

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
        self._ended = True
        self._deadline.stop()

    def assign(self) -> None:
        """Give idle collectors blocks, now and when a block is overdue."""
        if self._ended:
            return
        self._attach()
        now, deadline_s = asyncio.get_running_loop().time(), self._deadline.age_s
        members = {member.learner: member for member in self.eligible}
        for collector, key in self.scheduler.assign(now, deadline_s=deadline_s):
            member, play = members[collector], self._iterations[key.iteration].play
            work = self.eligible[member]
            self._sender.send(member.outbox, work, key, play, now=now, deadline_s=deadline_s)
            self._event_log.append(
                BlockAssigned(
                    term=self._identity.term,
                    iteration=key.iteration,
                    block=key.block,
                    collector=collector,
                    version=play.publication.version,
                )
            )
            again = len(self.scheduler.holders(key)) > 1
            work.reassigned += again
            self.totals.assigned += 1
            self.totals.reassigned += again
        self._deadline.watch(self.scheduler.begun_at(), now=now)
        self._show()

    def _attach(self) -> None:
        """Let the ready collectors of the run's numerics play."""
        self.roster.numerics = self._learners.numerics
        if self.roster.numerics is None:
            return
        for member in self.roster.eligible:
            if member not in self.eligible:
                self.eligible[member] = CollectorWork()
                self.scheduler.attach(member.learner)

    def admit(self, member: Member) -> None:
        """Let a collector that is ready play, if its numerics are those of the run."""
        self.assign()

    def leave(self, member: Member) -> None:
        """Forget a collector whose stream ended; its block is assigned to another."""
        work = self.eligible.pop(member, None)
        if work is not None:
            if work.block is not None:
                self.totals.lost += 1
                if work.block in self.scheduler.waiting:
                    self.lost[work.block] += 1
            self.scheduler.detach(member.learner)
        self.roster.leave(member)
        self.assign()

    def take(self, member: Member, message: pb.CollectorMessage) -> None:
        """Take a message of a collector.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        if message.WhichOneof("message") == "failed":
            failed = message.failed
            key = BlockKey(failed.iteration, failed.block)
            self._check_assigned(member, key)
            self.failed(member, key, failed.reason)
            return
        if message.WhichOneof("message") != "played":
            raise InvalidContribution(f"{message.WhichOneof('message')} was not expected here")
        problem = self._identity.problem
        report = block_report(
            message.played,
            self.plan,
            agents=self._agents,
            ends=0 if problem.episodes is None else 1,
            row_size=problem.row_size,
        )
        self._check_assigned(member, report.key)
        self.answered(member, report)

    def _check_assigned(self, member: Member, key: BlockKey) -> None:
        """Refuse a block that the collector was not assigned.

        Raises:
            InvalidContribution: It was assigned another one, or none.
        """
        work = self.eligible.get(member)
        if work is None or work.block != key:
            raise InvalidContribution(
                f"block {key.block} of iteration {key.iteration} was not assigned to this collector"
            )

    def answered(self, member: Member, report: BlockReport) -> None:
        """Take a report of a collector; the first one of a block counts, another one is named."""
        work, key = self.eligible[member], report.key
        report = report._replace(collector=member.learner)
        differing = self.scheduler.answer(member.learner, key, report)
        for sums in (work, self.totals):
            sums.playing_s += report.playing_s
            sums.idle_s += report.idle_s
        work.block, work.blocks = None, work.blocks + 1
        self.totals.played += 1
        self.lost.pop(key, None)
        self._deadline.record(asyncio.get_running_loop().time() - work.assigned_at)
        if differing is not None:
            caveat = (
                f"collectors {differing.first} and {differing.second} played block {key.block} of "
                f"iteration {key.iteration} differently; the answer of collector "
                f"{differing.first} was taken"
            )
            self._progress.record_caveat("collectors", caveat)
            log.warning("blocks_differ %s", caveat)
        waiting = self._iterations.get(key.iteration)
        if waiting is not None and not waiting.complete.done():
            blocks = self.scheduler.take(waiting.keys)
            if blocks is not None:
                waiting.complete.set_result(blocks)
        self.assign()
        log.debug("played collector=%d %s playing_s=%.3f", member.learner, key, report.playing_s)

    def distrust(self, reports: Iterable[BlockReport]) -> None:
        """End the streams of collectors that falsely reported these blocks as staged."""
        blamed = dict[int, BlockKey]()
        for report in reports:
            if report.is_staged:
                blamed.setdefault(report.collector, report.key)
        for member in self.eligible:
            if (key := blamed.get(member.learner)) is not None:
                member.expel(
                    InvalidContribution(
                        f"played: no rows of its digest are staged for block {key.block} of "
                        f"iteration {key.iteration}"
                    )
                )

    def failed(self, member: Member, key: BlockKey, reason: str) -> None:
        """Take note that a collector's environment raised; too many failures end run and pool."""
        work, reason = self.eligible[member], one_line(reason)
        work.block, work.failed = None, reason
        self.totals.failed += 1
        log.warning("block_failed collector=%d host=%s %s", member.learner, member.host, reason)
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
            if self._progress.stall(f"{waits}{excluded(roster.members, roster.numerics)}"):
                log.warning("stalled reason=%s", self._progress.message)
            self._stalled = True
        elif self._stalled:
            self._progress.run()
            self._stalled = False

    def waits_for(self) -> str:
        """One line: the side that waits and the cause; empty once the run is finished."""
        keys, progress = self.scheduler.waiting, self._progress
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

    def statuses(self, *, version: int, now: float) -> Iterator[pb.CollectorStatus]:
        """The status of each attached collector.

        Args:
            version: Version of the current parameters.
            now: Loop time.
        """
        for member in self.roster.members:
            work = self.eligible.get(member) or CollectorWork()
            block = work.block
            status = member_status(member, now=now, lag=work.lag(version), failed=work.failed)
            status.spare = member.objection(self.roster.numerics)
            status.blocks, status.playing = work.blocks, block is not None
            if block is not None:
                status.iteration, status.block = block
                status.playing_s = now - work.assigned_at
            status.block_s, status.idle = work.block_s, work.idle
            status.reassigned = work.reassigned
            yield status

    def blocks(self) -> pb.BlocksStatus:
        """Totals over all collectors."""
        totals = self.totals
        return pb.BlocksStatus(
            played=totals.played,
            reassigned=totals.reassigned,
            lost=totals.lost,
            failed=totals.failed,
            waiting=len(self.scheduler.waiting),
            block_s=totals.playing_s / totals.played if totals.played else 0.0,
            awaited_s=totals.awaited_s,
        )

    def metrics(self, *, version: int) -> Iterator[Family]:
        """The current state of the collectors, and their totals.

        Args:
            version: Version of the current parameters.
        """
        eligible, totals = self.eligible, self.totals
        yield from pool_metrics(
            self.roster,
            playing=len(eligible),
            lags={str(each.learner): work.lag(version) for each, work in eligible.items()},
        )
        yield gauge(
            "collector_block_seconds",
            "Mean duration of a block of each collector.",
            {str(each.learner): work.block_s for each, work in eligible.items()},
            label="collector",
        )
        yield gauge("blocks_waiting", "Blocks without an answer.", len(self.scheduler.waiting))
        for name, text, total in (
            ("blocks_played", "Blocks that collectors have played.", totals.played),
            ("blocks_assigned", "Blocks assigned, again when overdue.", totals.assigned),
            ("blocks_reassigned", "Overdue blocks reassigned.", totals.reassigned),
            ("blocks_lost", "Blocks whose collector was lost.", totals.lost),
            ("blocks_failed", "Blocks whose environment raised.", totals.failed),
            ("collectors_playing_seconds", "Time of playing.", totals.playing_s),
            ("collectors_idle_seconds", "Time of collectors without blocks.", totals.idle_s),
            ("blocks_awaited_seconds", "Time of the run without blocks.", totals.awaited_s),
        ):
            yield counter(name, text, total)
