"""One round over the network: the host of its state machine, which sends rows to learners."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import inf
from typing import TypeVar

from fullrank.common.failpoints import reach
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.planning.grace import Grace, first_grace
from fullrank.replay.samplers import Sample
from fullrank.rounds.decision import Decoded
from fullrank.rounds.reports import Claim
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import (
    AddRows,
    Arrived,
    Assign,
    Begun,
    Commit,
    DeadlineEnded,
    Decided,
    Decode,
    Examine,
    Expel,
    Fail,
    GraceEnded,
    MembershipChanged,
    Precompute,
    Quarantine,
    Recompute,
    Resume,
    RoundEvent,
    RoundOrder,
    SendAgain,
    SetTimer,
    Stall,
    Suspect,
)
from fullrank.runs.events import Added
from fullrank_controller.learners.broadcast import AssignmentEncoder, EncodeAssignment
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.timeline import Timeline
from fullrank_controller.run import Run
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

T = TypeVar("T")

SMALL = 2**16
"""Entries up to which a vector is decoded on the event loop: half a millisecond, less than a thread
takes to start on a processor that learners use, too."""


class Dispatcher:
    """Sends rows of C, and extra rows, to learners.

    Args:
        run: Its event log receives each assignment before it is sent.
        opened: The open round.
        encoder: Holds the encoded parameters.
        sample: The minibatch.
        timeline: Records when each learner was assigned a row.
        deadline_s: Deadline of the round, which assignments carry.
    """

    def __init__(
        self,
        run: Run,
        opened: OpenRound[Member],
        encoder: AssignmentEncoder,
        sample: Sample,
        *,
        timeline: Timeline,
        deadline_s: float,
    ) -> None:
        self._run, self._opened = run, opened
        self._encoder, self._sample, self._timeline = encoder, sample, timeline
        self._deadline_s = deadline_s
        self._latest: dict[LearnerId, tuple[Member, int, EncodeAssignment]] = {}
        """The assignment that each learner was sent last."""

    async def assign(self, rows: Sequence[int]) -> None:
        """Encode and send rows of C by share; the first ones travel while the next are encoded.

        Args:
            rows: Whole shares, ascending.
        """
        holders, ids = self._opened.assignment.holders, self._run.identity.ids(self._opened)
        self._run.assigned(self._opened, ((row, holders[row].learner) for row in rows))
        width = self._opened.assignment.code.rows_per_learner
        for share, (first, *_) in groupby(rows, key=lambda row: row // width):
            await self._send(holders[first], first, partial(self._encoder.encode, share, ids=ids))

    async def add(self, added: Mapping[Member, Mapping[int, UnitIndex]], *, hedged: bool) -> None:
        """Send extra rows, single units, to their holders."""
        ids = self._run.identity.ids(self._opened)
        rows = tuple(item for units_by_row in added.values() for item in units_by_row.items())
        self._run.event_log.append(
            Added(term=ids.term, epoch=ids.epoch, iteration=ids.iteration, units=rows)
        )
        self._run.assigned(
            self._opened, ((row, member.learner) for member, own in added.items() for row in own)
        )
        for member, units_by_row in added.items():
            encode = partial(self._encoder.encode_units, units_by_row, ids=ids)
            await self._send(member, next(iter(units_by_row)), encode)
        log.log(
            logging.DEBUG if hedged else logging.WARNING,
            "%s iteration=%d attempt=%d units=%s learners=%s",
            "hedged" if hedged else "recoded",
            ids.iteration,
            ids.attempt,
            sorted(unit for _, unit in rows),
            sorted(member.learner for member in added),
        )

    async def send_again(self, learner: LearnerId) -> None:
        """Send a learner its last assignment and all later ones by stream."""
        latest = self._latest.get(learner)
        if latest is not None:
            member = latest[0]
            member.vectors = None
            log.warning("sections_unreadable learner=%d: they are sent from now on", learner)
            await self._send(*latest)

    async def _send(self, member: Member, row: int, encode: EncodeAssignment) -> None:
        self._latest[member.learner] = member, row, encode
        shared = member.vectors is not None
        deadline_s = self._deadline_s
        encoded = encode(sample=self._sample, deadline_s=deadline_s, shared=shared)
        member.outbox.assign(encoded, deadline_s=deadline_s)
        self._timeline.assigned(member.learner, row)
        reach("row.assigned")
        if not shared:
            await asyncio.sleep(0)  # let the stream write before the next row is encoded


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """A decided round."""

    opened: OpenRound[Member]
    decision: Decoded
    timeline: Timeline

    @property
    def late(self) -> tuple[LearnerId, ...]:
        """Learners that were assigned rows and of which none had arrived."""
        return tuple(sorted(self.opened.assigned.difference(self.opened.round.received)))


class RoundRunner:
    """Runs the open round to its decision: events from learners' streams in, orders out.

    Args:
        run: The reception, learners and progress of the run.
        opened: The open round.
        encoder: Holds the encoded parameters.
        sample: The minibatch.
        recompute: Has this process compute statements, whose values come as an event.
        examine: Computes the units of a row whose vector was not finite; raises ``Unsound`` if they
            are not finite here, either.
        stalled: Looks at what keeps a round from going on; raises if that ends the run.
        deadline_s: Time after which the policy for undecided rounds applies.
        grace: Time after which idle learners compute what late ones have not sent; None: never.
        watchdog: Observes decoding.
    """

    def __init__(
        self,
        run: Run,
        opened: OpenRound[Member],
        encoder: AssignmentEncoder,
        sample: Sample,
        *,
        recompute: Callable[[Sequence[Claim]], None],
        examine: Callable[[int, Sequence[UnitIndex]], Awaitable[None]],
        stalled: Callable[[], Awaitable[None]],
        deadline_s: float,
        grace: Grace | None,
        watchdog: Watchdog,
    ) -> None:
        self._run, self._opened, self._round = run, opened, opened.round
        self._recompute, self._examine, self._stalled = recompute, examine, stalled
        self._deadline_s, self._watchdog = deadline_s, watchdog
        self._deadline_at = 0.0
        self._grace_at = opened.began_at + grace.seconds if grace is not None else inf
        self._first = grace is not None and self._grace_at == inf
        self._timeline = Timeline.of(run.identity.ids(opened), opened)
        encoder.traceparent = self._timeline.span.traceparent
        self._dispatcher = Dispatcher(
            run, opened, encoder, sample, timeline=self._timeline, deadline_s=deadline_s
        )
        self._single_units = bool(((opened.assignment.code.matrix != 0).sum(axis=1) <= 1).all())
        self._decision: Decoded | None = None

    async def run(self) -> RoundResult:
        """Assign every held row and wait for the decision.

        Raises:
            NotDecodable: By policy, when the deadline passed or no more rows can come.
            Corrupted: The rows contradict each other, and no more can come or the deadline passed.
            Unsound: An update is not finite, as the controller has computed, too.
        """
        await self._tell(Begun())
        while self._decision is None:
            due_at = min(self._deadline_at, self._grace_at)
            event = await self._run.reception.next_event(deadline=due_at)
            if event is None:
                event = self._time_ended()
            elif isinstance(event, Arrived):
                reach("row.arrived")
                holder = self._opened.holder_of(event.row, event.learner)  # None: it has left
                self._timeline.arrived(event, holder, code_rows=self._opened.assignment.code.rows)
                if holder is not None:
                    holder.batch_bytes = event.batch_bytes
                if self._first:
                    seen, asked = self._timeline.arrival_s.values(), len(self._opened.assigned)
                    self._grace_at = self._opened.began_at + first_grace(seen, asked)
            await self._tell(event)
        return RoundResult(opened=self._opened, decision=self._decision, timeline=self._timeline)

    def _time_ended(self) -> RoundEvent:
        """The event of the time that has passed first."""
        if self._grace_at <= self._deadline_at:
            self._grace_at, self._first = inf, False
            return GraceEnded()
        return DeadlineEnded(self._paused_s())

    async def _tell(self, event: RoundEvent) -> None:
        """Let the round take an event, and execute what it orders, one after the other."""
        for order in self._opened.step(event):
            await self._execute(order)

    async def _execute(self, order: RoundOrder) -> None:
        match order:
            case Assign(rows):
                with self._timeline.part("assign", rows=list(rows)):
                    await self._dispatcher.assign(rows)
            case AddRows(units, hedged):
                with self._timeline.part("assign", hedged=hedged):
                    await self._dispatcher.add(units, hedged=hedged)
            case SendAgain(learner):
                await self._dispatcher.send_again(learner)
            case Precompute():
                await self._precompute()
            case Decode():
                await self._decode()
            case Recompute(claims):
                self._recompute(claims)
            case Examine(row, units):
                await self._examine(row, units)
            case Expel(holder, error):
                log.warning("refused learner=%d reason=%s", holder.learner, error)
                holder.expel(error)
            case SetTimer():
                self._deadline_at = asyncio.get_running_loop().time() + self._deadline_s
            case Commit(decision):
                self._decision = decision
            case Fail(error):
                raise error
            case _:
                await self._record(order)

    async def _record(self, order: RoundOrder) -> None:
        """Execute an order that tells the run, and whoever watches it, of its learners."""
        roster, progress = self._run.roster, self._run.progress
        match order:
            case Quarantine(learner, reason):
                proof = "convicted" if self._decision is None else "quarantined"
                log.error("%s learner=%d reason=%s", proof, learner, reason)
                roster.quarantine(learner, reason, iteration=self._round.iteration)
                if self._decision is None:
                    await self._tell(MembershipChanged())
            case Suspect(learners, reason):
                roster.suspect(learners, reason, iteration=self._round.iteration)
            case Stall(reason):
                if progress.stall(reason):
                    log.warning("waiting reason=%s", reason)
                await self._stalled()
            case Resume(message):
                progress.run(message)

    def _paused_s(self) -> dict[LearnerId, float]:
        """Seconds since each holder with an incomplete vector of the round sent anything."""
        now, identity = asyncio.get_running_loop().time(), self._run.identity
        return {
            member.learner: now - member.sent_at
            for member in self._opened.assignment.holders.values()
            if member.begun is not None and identity.is_current(member.begun, self._opened)
        }

    async def _decode(self) -> None:
        """Decode, and tell the decision."""
        self._timeline.decodable()
        started = self._timeline.elapsed_s()
        with self._watchdog.phase("decoding"), self._timeline.part("decode"):
            decision = await self._in_thread(self._round.decide)
        self._timeline.decode_s = self._timeline.elapsed_s() - started
        await self._tell(Decided(decision))

    async def _precompute(self) -> None:
        """Work ahead of the decision while no event is queued."""
        if self._run.reception.idle and self._single_units:
            with self._watchdog.phase("preparing"):
                await self._in_thread(self._round.precompute)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Call on a thread, unless the rows are small and of one unit each."""
        if self._single_units and self._round.contributions.length <= SMALL:
            return call()
        return await asyncio.to_thread(call)
