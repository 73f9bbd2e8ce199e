"""One round over the network: fan out, offer what arrives, stop when it may be committed."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fullrank.common.errors import Corrupted, DeadlinePassed, InvalidContribution, NotDecodable
from fullrank.common.failpoints import reach
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.config import RunConfig
from fullrank.replay import Sample
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.round import Round
from fullrank.runs.event_log import Added, Assigned
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners.broadcast import Broadcast
from fullrank_controller.membership.assignment import Deal
from fullrank_controller.membership.membership import Membership
from fullrank_controller.membership.roster import Member, Parcel
from fullrank_controller.rounds.events import Arrived, Event, MembershipChanged, Reported
from fullrank_controller.run_state import Run
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

T = TypeVar("T")

SMALL = 2**16
"""Entries of a vector that is decoded and hashed in half a millisecond, sooner than a thread would
have done it on a processor that learners use, too."""

SILENT = 0.5
"""A stream that began to send a vector may pause for this share of the deadline."""


@dataclass(slots=True)
class Times:
    """What each learner did when, by the names of ``IterationRecord``, seconds."""

    compute_s: dict[LearnerId, float] = field(default_factory=dict)
    assigned_s: dict[LearnerId, float] = field(default_factory=dict)
    started_s: dict[LearnerId, float] = field(default_factory=dict)
    sent_s: dict[LearnerId, float] = field(default_factory=dict)
    arrival_s: dict[LearnerId, float] = field(default_factory=dict)
    decodable_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A decided round and how it went."""

    decision: Decoded
    times: Times
    rows: dict[LearnerId, int]
    late: tuple[LearnerId, ...]
    decode_s: float


class Gathering:
    """Runs ``run.round`` to its decision.

    Args:
        config: Policies.
        run: The open round and its learners.
        membership: Deals vacated rows to others.
        current: The deal of this epoch.
        broadcast: Encoded assignments of this round.
        sample: The minibatch.
        deadline_s: After this long without a decision the policy speaks.
        watchdog: Told of decoding.
    """

    def __init__(
        self,
        config: RunConfig,
        run: Run,
        membership: Membership,
        current: Deal,
        broadcast: Broadcast,
        *,
        sample: Sample,
        deadline_s: float,
        watchdog: Watchdog,
    ) -> None:
        assert run.round is not None
        self._settings = config.controller
        self._run = run
        self._round: Round = run.round
        self._membership = membership
        self._deal = current
        self._broadcast = broadcast
        self._sample = sample
        self._deadline_s = deadline_s
        self._watchdog = watchdog
        self._ends_at = 0.0
        self._started = 0.0
        self._assigned: dict[LearnerId, int] = {}
        self._times = Times()
        self._decode_s = 0.0
        self._lost = self._others_asked = False
        self._single_units = bool((current.code.load <= 1).all())
        self._last: Decision = Waiting()

    async def run(self) -> Gathered:
        """Assign every held row and wait for the decision.

        Raises:
            NotDecodable: By policy, when the deadline passed or nothing more can come.
            Corrupted: Nothing more can come, or the deadline passed, and what came is corrupt.
        """
        self._started = self._run.round_began_at = asyncio.get_running_loop().time()
        self._extend()
        await self._assign(sorted(self._deal.holders))
        while True:
            event = await self._next_event()
            last = self._last
            if event is None and isinstance(last, Decoded) and last.variance is not None:
                return self._gathered(last)
            if event is None:
                await self._speak_at_deadline()
                self._extend()
                continue
            noted = self._note(event)
            if isinstance(event, MembershipChanged) or (noted and self._lost):
                await self._make_good()
            if noted and (decision := await self._decide()) is not None:
                return self._gathered(decision)

    def _gathered(self, decision: Decoded) -> Gathered:
        return Gathered(
            decision=decision,
            times=self._times,
            rows=self._assigned,
            late=tuple(sorted(self._assigned.keys() - set(self._round.received))),
            decode_s=self._decode_s,
        )

    async def _assign(self, rows: list[int]) -> None:
        """Encode and hand over one assignment after the other; the first ones already travel."""
        holders, ids = self._deal.holders, self._run.ids
        self._note_assigned((row, holders[row]) for row in rows)
        for row in rows:
            parcel = self._broadcast.parcel(
                row, ids=ids, sample=self._sample, deadline_s=self._deadline_s
            )
            await self._hand_over(holders[row], row, parcel)

    async def _add(self, units: Mapping[LearnerId | None, Sequence[UnitIndex]]) -> bool:
        """Have units computed, each a row of its own; False if everybody is busy.

        Args:
            units: By the learner that must not compute them; None where anybody may.
        """
        run, dealt = self._run, self._membership.hand_out(self._deal, units)
        if not dealt:
            return False
        run.attempt += 1
        ids = run.ids
        added = tuple(each for rows in dealt.values() for each in rows.items())
        run.event_log.append(
            Added(term=ids.term, epoch=ids.epoch, iteration=ids.iteration, units=added)
        )
        self._note_assigned((row, member) for member, rows in dealt.items() for row in rows)
        for member, rows in dealt.items():
            parcel = self._broadcast.parcel_of_units(
                rows, ids=ids, sample=self._sample, deadline_s=self._deadline_s
            )
            await self._hand_over(member, next(iter(rows)), parcel)
        log.warning(
            "recoded iteration=%d attempt=%d units=%s learners=%s",
            ids.iteration,
            ids.attempt,
            sorted(unit for _, unit in added),
            sorted(member.learner for member in dealt),
        )
        return True

    def _note_assigned(self, rows: Iterable[tuple[int, Member]]) -> None:
        ids = self._run.ids
        self._run.event_log.append(
            Assigned(
                term=ids.term,
                epoch=ids.epoch,
                iteration=ids.iteration,
                attempt=ids.attempt,
                rows=tuple((row, member.learner) for row, member in rows),
            )
        )

    async def _hand_over(self, member: Member, row: int, parcel: Parcel) -> None:
        member.outbox.assign(parcel, deadline_s=self._deadline_s)
        self._assigned.setdefault(member.learner, row)
        self._times.assigned_s.setdefault(member.learner, self._elapsed_s())
        reach("row.assigned")
        await asyncio.sleep(0)

    async def _make_good(self) -> None:
        """Learners that left took rows along: have what is now missing computed by others."""
        self._deal.drop_absent(self._run.roster.eligible)
        units = self._round.missing(self._deal.holders)
        self._lost = bool(units) and not await self._add({None: units})
        if self._lost and not self._more_can_come():
            self._stall(
                f"units {units} left with their learners, and nobody is there to compute them"
            )
        else:
            self._run.state, self._run.message = pb.RUN_STATE_RUNNING, ""

    def _extend(self) -> None:
        self._ends_at = asyncio.get_running_loop().time() + self._deadline_s

    async def _next_event(self) -> Event | None:
        """The next event; None at the deadline, whatever came before it."""
        if not self._run.inbox.empty():
            return self._run.inbox.get_nowait()
        try:
            async with asyncio.timeout_at(self._ends_at):
                return await self._run.inbox.get()
        except TimeoutError:
            return None

    def _note(self, event: Event) -> bool:
        """Take an event into the round; whether it may change the verdict."""
        if isinstance(event, MembershipChanged):
            return True
        if not self._run.is_current(event.ids):
            if isinstance(event, Reported):
                self._run.hear_late(event.ids, event.learner, event.digests)
            return False
        if isinstance(event, Reported):
            for unit, digest in event.digests.items():
                self._round.report(unit, digest, learner=event.learner)
            return True
        return self._offer(event)

    def _offer(self, event: Arrived) -> bool:
        reach("row.arrived")
        holder = self._deal.holders.get(event.row)
        if holder is not None and holder.learner != event.learner:  # who sent it has left meanwhile
            holder = None
        self._time(event, holder)
        try:
            fresh = self._round.offer(
                learner=event.learner,
                row=event.row,
                coded=event.coded,
                batch_digest=event.batch_digest,
            )
        except InvalidContribution as error:
            log.warning("refused learner=%d reason=%s", event.learner, error)
            if holder is not None:
                holder.expel(error)
            return False
        if self._times.decodable_s is None and self._round.decodable:
            self._times.decodable_s = self._elapsed_s()
        return fresh

    def _time(self, event: Arrived, holder: Member | None) -> None:
        times, learner, now_s = self._times, event.learner, self._elapsed_s()
        times.compute_s[learner] = event.compute_s
        times.arrival_s[learner] = now_s
        if holder is not None:
            assigned_s = times.assigned_s.get(learner, 0.0)
            written_s = max(assigned_s, holder.outbox.assigned_at - self._started)
            times.started_s[learner] = min(written_s + event.started_s, now_s)
            times.sent_s[learner] = min(written_s + event.sent_s, now_s)

    def _elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._started

    async def _decide(self) -> Decoded | None:
        """The decision if the round may be committed now."""
        if not self._round.decodable:
            await self._prepare()
            return None
        clock = asyncio.get_running_loop().time
        started = clock()
        with self._watchdog.phase("decoding"):
            self._last = decision = await self._beside(self._round.decide)
        self._decode_s = clock() - started
        if isinstance(decision, Decoded) and decision.verdict is Verdict.COMMIT:
            return self._without_culprit(decision)
        if isinstance(decision, Waiting) or self._more_can_come():
            return None
        if isinstance(decision, Corrupt):
            if await self._ask_others():
                return None
            raise Corrupted(f"iteration {self._round.iteration}: {decision.reason}")
        if decision.verdict is Verdict.HIGH_VARIANCE:
            return decision
        return self._without_culprit(self._inexact(decision))

    async def _prepare(self) -> None:
        """Get ahead of the decision, once nothing else has come."""
        if self._run.inbox.empty() and self._single_units:
            with self._watchdog.phase("preparing"):
                await self._beside(self._round.precompute)

    async def _beside(self, call: Callable[[], T]) -> T:
        """Call it on a thread; small rows of one unit take less time than the way there."""
        if self._single_units and self._run.vector_size <= SMALL:
            return call()
        return await asyncio.to_thread(call)

    async def _ask_others(self) -> bool:
        """Once, by policy: have so much computed again that the rows do without any one learner.

        Then leaving out the one that was wrong mends all. False if nobody can be asked.
        """
        if self._settings.undecodable != "recode" or self._others_asked:
            return False
        self._others_asked = True
        return await self._add(
            {each: self._round.missing_without(each) for each in self._round.received}
        )

    def _without_culprit(self, decision: Decoded) -> Decoded:
        if decision.culprit is not None:
            log.error("quarantined learner=%d reason=%s", decision.culprit, decision.reason)
            self._run.roster.quarantine(decision.culprit, decision.reason)
        return decision

    def _more_can_come(self) -> bool:
        return any(row not in self._round.rows for row in self._deal.holders)

    def _inexact(self, decision: Decoded) -> Decoded:
        if self._settings.inexact == "commit":
            return decision
        raise NotDecodable(
            f"iteration {self._round.iteration}: all rows have come and kappa = "
            f"{self._round.condition:.1e} still leaves an error of {decision.error_bound:.1e}; "
            "choose a better conditioned code (cyclic, mds), or set controller.inexact=commit"
        )

    async def _speak_at_deadline(self) -> None:
        """The deadline passed: as the policy wants it, fail, recode or wait."""
        awaited = sorted(self._assigned.keys() - set(self._round.received))
        reason = (
            f"iteration {self._round.iteration}: rank {self._round.rank} of {self._run.units} "
            f"after {self._deadline_s:.1f} s; learners {awaited} have not answered"
        )
        if isinstance(self._last, Corrupt):
            if await self._ask_others():
                return
            raise Corrupted(f"{reason}; {self._last.reason}")
        if self._settings.undecodable == "fail":
            raise NotDecodable(f"{reason}; raise controller.deadline_s or code.tolerance")
        self._stall(reason)
        self._cut_off_stuck()
        if self._settings.undecodable == "recode" and await self._add(
            {None: self._round.missing()}
        ):
            self._run.state = pb.RUN_STATE_RUNNING

    def _cut_off_stuck(self) -> None:
        """End the streams that began to send a vector, of which nothing came for long."""
        silent_s = SILENT * self._deadline_s
        before = asyncio.get_running_loop().time() - silent_s
        for member in set(self._deal.holders.values()):
            begun = member.begun
            if begun is not None and self._run.is_current(begun) and member.sent_at < before:
                member.expel(DeadlinePassed(f"no more of its vector came for {silent_s:.1f} s"))

    def _stall(self, reason: str) -> None:
        stalled = pb.RUN_STATE_STALLED, reason
        if (self._run.state, self._run.message) != stalled:
            log.warning("waiting reason=%s", reason)
        self._run.state, self._run.message = stalled
