"""Attached collectors, the blocks dealt to them, and the iterations that wait for blocks."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from fullrank.common.errors import EnvironmentFailed
from fullrank.config.tree import ControllerSettings
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Dealt
from fullrank.training.block_player import Play, PlayedBlock
from fullrank.training.blocks import BlockKey, BlockPlan, Dealing, deadline_of
from fullrank_controller.collectors.hands import Hand, OrderSender
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
            factor=settings.deadline_factor,
            least_s=settings.least_deadline_s,
        )

    def record(self, duration_s: float) -> None:
        """Record how long a block took."""
        self._durations_s.append(duration_s)

    def watch(self, begun_at: float | None, *, now: float) -> None:
        """Set the timer to the block that was dealt at this time, unless it is overdue already."""
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

    play: Play
    complete: "asyncio.Future[list[PlayedBlock]]"


class CollectorPool:
    """Plays iterations on collectors; every block is taken once, whoever plays it.

    Args:
        plan: Blocks of an iteration.
        settings: Deadlines.
        roster: Attached collectors.
        learners: Attached learners, which hold the numerics of the run.
        progress: Shows what the run waits for.
        event_log: Receives each block that is dealt.
        term: Term of this controller.

    Attributes:
        plan: As given.
        roster: As given.
        hands: What each collector that may play has been dealt.
        played: Blocks that collectors have played.
        dealt: Blocks that were dealt, again when they were overdue.
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
        term: int,
    ) -> None:
        self.plan, self.roster = plan, roster
        self._learners, self._progress = learners, progress
        self._event_log, self._term = event_log, term
        self._dealing: Dealing[PlayedBlock] = Dealing(plan)
        self.hands: dict[Member, Hand] = {}
        self._iterations: dict[int, _Waiting] = {}
        self._deadline = BlockDeadline(settings, self.deal)
        self._sender = OrderSender(write_s=settings.lost_after_s)
        self._stalled = self._ended = False
        self.played = self.dealt = 0

    async def play(self, iteration: int, play: Play) -> list[PlayedBlock]:
        """Return the blocks of an iteration in order, once collectors have played them.

        Raises:
            EnvironmentFailed: A block failed too often.
        """
        self._dealing.open(iteration)
        complete: asyncio.Future[list[PlayedBlock]] = asyncio.get_running_loop().create_future()
        self._iterations[iteration] = _Waiting(play, complete)
        self.deal()
        try:
            return await complete
        finally:
            del self._iterations[iteration]

    def end(self) -> None:
        """Deal no more."""
        self._ended = True
        self._deadline.stop()

    def deal(self) -> None:
        """Give idle collectors blocks, now and when a block is overdue."""
        if self._ended:
            return
        self._attach()
        now, deadline_s = asyncio.get_running_loop().time(), self._deadline.age_s
        members = {member.learner: member for member in self.hands}
        for collector, key in self._dealing.deal(now, deadline_s=deadline_s):
            member, play = members[collector], self._iterations[key.iteration].play
            hand = self.hands[member]
            self._sender.send(member.outbox, hand, key, play, now=now, deadline_s=deadline_s)
            self._event_log.append(
                Dealt(
                    term=self._term,
                    iteration=key.iteration,
                    block=key.block,
                    collector=collector,
                )
            )
            self.dealt += 1
        self._deadline.watch(self._dealing.begun_at(), now=now)
        self._show()

    def _attach(self) -> None:
        """Let the ready collectors of the run's numerics play."""
        self.roster.numerics = self._learners.numerics
        if self.roster.numerics is None:
            return
        for member in self.roster.eligible:
            if member not in self.hands:
                self.hands[member] = Hand()
                self._dealing.attach(member.learner)

    def leave(self, member: Member) -> None:
        """Forget a collector whose stream ended; its block is dealt to another."""
        if self.hands.pop(member, None) is not None:
            self._dealing.detach(member.learner)
        self.roster.leave(member)
        self.deal()

    def plays(self, member: Member, key: BlockKey) -> bool:
        """Return whether a collector was dealt this block and has not answered."""
        return member in self.hands and self.hands[member].block == key

    def answered(
        self, member: Member, key: BlockKey, played: PlayedBlock, *, playing_s: float
    ) -> None:
        """Take a block from a collector; the first answer counts."""
        hand = self.hands[member]
        differing = self._dealing.answer(member.learner, key, played)
        hand.block, hand.blocks = None, hand.blocks + 1
        self.played += 1
        self._deadline.record(asyncio.get_running_loop().time() - hand.dealt_at)
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
            blocks = self._dealing.take(key.iteration)
            if blocks is not None:
                waiting.complete.set_result(blocks)
        self.deal()
        log.debug("played collector=%d %s playing_s=%.3f", member.learner, key, playing_s)

    def failed(self, member: Member, key: BlockKey, reason: str) -> None:
        """Take note that a collector's environment raised; too many failures end the run."""
        hand = self.hands[member]
        hand.block, hand.failed = None, reason
        log.warning("block_failed collector=%d host=%s %s", member.learner, member.host, reason)
        try:
            self._dealing.fail(member.learner, key, f"on {member.host}: {reason}")
        except EnvironmentFailed as error:
            for waiting in self._iterations.values():
                if not waiting.complete.done():
                    waiting.complete.set_exception(error)
            return
        self.deal()

    def _show(self) -> None:
        """Say what the run waits for if nobody can play."""
        roster = self.roster
        if self._iterations and not self.hands:
            if self._progress.stall(
                f"{self.waits_for()}{excluded(roster.members, roster.numerics)}"
            ):
                log.warning("stalled reason=%s", self._progress.message)
            self._stalled = True
        elif self._stalled:
            self._progress.run()
            self._stalled = False

    @property
    def waiting(self) -> int:
        """Number of blocks without an answer."""
        return len(self._dealing.waiting)

    def waits_for(self) -> str:
        """One line: the blocks for which the run waits, and who plays them; empty without any."""
        keys = self._dealing.waiting
        if not keys:
            return ""
        who = f"collectors {self._dealing.holders(keys[0])}" if self.hands else "a collector"
        return (
            f"{len(keys)} blocks are not played, the first is block {keys[0].block} of iteration "
            f"{keys[0].iteration}, which waits for {who}"
        )
