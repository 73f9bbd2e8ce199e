"""Attached collectors, the blocks dealt to them, and the iterations that wait for blocks."""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass

from fullrank.common.errors import EnvironmentFailed
from fullrank.config.tree import ControllerSettings
from fullrank.rpc.codec import COLLECTOR_CHUNKS, bundle, encode_chunks
from fullrank.runs.event_log import EventLog
from fullrank.runs.events import Dealt
from fullrank.training.block_player import Play, PlayedBlock, Publication
from fullrank.training.blocks import BlockKey, BlockPlan, Dealing, Differing, deadline_of
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.membership.roster import Member, Roster
from fullrank_controller.progress import RunProgress

log = logging.getLogger(__name__)

RECENT = 200
"""Number of blocks whose durations give the deadline."""


@dataclass(eq=False, slots=True)
class Hand:
    """What a collector has been dealt."""

    block: BlockKey | None = None
    dealt_at: float = 0.0
    version: int | None = None
    """Version of the parameters that it was sent last."""
    blocks: int = 0
    """Blocks that it has played."""
    failed: str = ""
    """Why its last failure was one."""


class PublicationEncoder:
    """Encodes the newest publication once for all collectors."""

    def __init__(self) -> None:
        self._encoded: tuple[Publication, list[bytes]] | None = None

    def encode(self, publication: Publication) -> list[bytes]:
        """The messages of a publication."""
        if self._encoded is None or self._encoded[0] is not publication:
            head = pb.Publication(
                version=publication.version, sections=sorted(publication.sections)
            )
            fields = (
                field
                for section, values in sorted(publication.sections.items())
                for field in encode_chunks(values, array_id=section, field=COLLECTOR_CHUNKS)
            )
            announced = pb.CollectorOrder(publication=head).SerializeToString()
            self._encoded = publication, [announced, *bundle(fields)]
        return self._encoded[1]


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
        self._settings, self._learners, self._progress = settings, learners, progress
        self._event_log, self._term = event_log, term
        self._dealing: Dealing[PlayedBlock] = Dealing(plan)
        self.hands: dict[Member, Hand] = {}
        self._plays: dict[int, Play] = {}
        self._complete: dict[int, asyncio.Future[None]] = {}
        self._durations_s: deque[float] = deque(maxlen=RECENT)
        self._encoder = PublicationEncoder()
        self._timer: asyncio.TimerHandle | None = None
        self._stalled = self._ended = False
        self.played = self.dealt = 0

    async def play(self, iteration: int, play: Play) -> list[PlayedBlock]:
        """Return the blocks of an iteration in order, once collectors have played them.

        Raises:
            EnvironmentFailed: A block failed too often.
        """
        self._plays[iteration] = play
        self._dealing.open(iteration)
        complete = asyncio.get_running_loop().create_future()
        self._complete[iteration] = complete
        self.deal()
        try:
            await complete
        finally:
            del self._complete[iteration], self._plays[iteration]
        return self._dealing.take(iteration)

    def end(self) -> None:
        """Deal no more."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()

    def deal(self) -> None:
        """Give idle collectors blocks, now and when a block is overdue."""
        if self._ended:
            return
        loop = asyncio.get_running_loop()
        self._attach()
        settings, now = self._settings, loop.time()
        deadline_s = deadline_of(
            self._durations_s,
            first_s=settings.deadline_s,
            factor=settings.deadline_factor,
            least_s=settings.least_deadline_s,
        )
        members = {member.learner: member for member in self.hands}
        for collector, key in self._dealing.deal(now, deadline_s=deadline_s):
            self._send(members[collector], key, now=now, deadline_s=deadline_s)
        if self._timer is not None:
            self._timer.cancel()
        begun_at = self._dealing.begun_at()
        if begun_at is not None and begun_at + deadline_s > now:
            self._timer = loop.call_at(begun_at + deadline_s, self.deal)
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

    def _send(self, member: Member, key: BlockKey, *, now: float, deadline_s: float) -> None:
        """Send a collector a block, with its parameters unless they were sent."""
        hand, play = self.hands[member], self._plays[key.iteration]
        publication = play.publication
        messages = [] if hand.version == publication.version else self._encoder.encode(publication)
        order = pb.Play(
            iteration=key.iteration,
            block=key.block,
            version=publication.version,
            env_steps=play.env_steps,
            deadline_s=deadline_s,
        )
        encoded = pb.CollectorOrder(play=order).SerializeToString()
        member.outbox.assign(
            [*(("publication", message) for message in messages), ("play", encoded)],
            deadline_s=self._settings.lost_after_s,
        )
        hand.block, hand.dealt_at, hand.version = key, now, publication.version
        dealt = Dealt(
            term=self._term,
            iteration=key.iteration,
            block=key.block,
            collector=member.learner,
        )
        self._event_log.append(dealt)
        self.dealt += 1

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
        self._durations_s.append(asyncio.get_running_loop().time() - hand.dealt_at)
        if differing is not None:
            self._name(differing)
        complete = self._complete.get(key.iteration)
        if complete is not None and not complete.done() and self._dealing.complete(key.iteration):
            complete.set_result(None)
        self.deal()
        log.debug("played collector=%d %s playing_s=%.3f", member.learner, key, playing_s)

    def _name(self, differing: Differing) -> None:
        key, first, second = differing
        caveat = (
            f"collectors {first} and {second} played block {key.block} of iteration "
            f"{key.iteration} differently; the answer of collector {first} was taken"
        )
        self._progress.record_caveat("collectors", caveat)
        log.warning("blocks_differ %s", caveat)

    def failed(self, member: Member, key: BlockKey, reason: str) -> None:
        """Take note that a collector's environment raised; too many failures end the run."""
        hand = self.hands[member]
        hand.block, hand.failed = None, reason
        log.warning("block_failed collector=%d host=%s %s", member.learner, member.host, reason)
        try:
            self._dealing.fail(member.learner, key, f"on {member.host}: {reason}")
        except EnvironmentFailed as error:
            for complete in self._complete.values():
                if not complete.done():
                    complete.set_exception(error)
            return
        self.deal()

    def _show(self) -> None:
        """Say what the run waits for if nobody can play."""
        if bool(self._complete) and not self.hands:
            if self._progress.stall(f"{self.waits_for()}{self.roster.excluded()}"):
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
