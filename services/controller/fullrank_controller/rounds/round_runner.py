"""One round over the network, from its first assignment to a decision that may be committed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import numpy as np

from fullrank.common.errors import InvalidContribution, NotFinite
from fullrank.common.failpoints import reach
from fullrank.common.types import UnitIndex
from fullrank.config.tree import ControllerSettings
from fullrank.replay.samplers import Sample
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank_controller.learners.broadcast import AssignmentEncoder
from fullrank_controller.rounds.dispatcher import Dispatcher
from fullrank_controller.rounds.endorsement import Endorsement
from fullrank_controller.rounds.events import (
    Arrived,
    MembershipChanged,
    RecomputedStatements,
    RoundEvent,
    SectionsUnreadable,
)
from fullrank_controller.rounds.open_round import OpenRound, RoundResult
from fullrank_controller.rounds.policy import RoundPolicy
from fullrank_controller.rounds.timeline import Timeline
from fullrank_controller.run import Run
from fullrank_controller.watchdog import Watchdog

log = logging.getLogger(__name__)

T = TypeVar("T")

SMALL = 2**16
"""Entries up to which a vector is decoded on the event loop: half a millisecond, less than a thread
takes to start on a processor that learners use, too."""


class RoundRunner:
    """Runs the open round to its decision.

    Args:
        settings: Policies.
        run: The reception, learners and progress of the run.
        opened: The open round.
        encoder: Holds the encoded parameters.
        sample: The minibatch.
        endorsement: Holds the commit back; None where reports may differ and all be right.
        examine: Computes the units of a row whose vector was not finite; raises ``Unsound`` if they
            are not finite here, either.
        deadline_s: Time after which the policy for undecided rounds applies.
        watchdog: Observes decoding.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        run: Run,
        opened: OpenRound,
        encoder: AssignmentEncoder,
        sample: Sample,
        *,
        endorsement: Endorsement | None = None,
        examine: Callable[[int, Sequence[UnitIndex]], Awaitable[None]],
        deadline_s: float,
        watchdog: Watchdog,
    ) -> None:
        self._endorsement, self._examine = endorsement, examine
        self._examined = False
        self._run, self._opened, self._round = run, opened, opened.round
        self._deadline_s, self._watchdog = deadline_s, watchdog
        self._timeline = Timeline(began_at=opened.began_at)
        self._dispatcher = Dispatcher(
            opened,
            encoder,
            sample,
            roster=run.roster,
            event_log=run.event_log,
            timeline=self._timeline,
            deadline_s=deadline_s,
        )
        self._policy = RoundPolicy(
            settings,
            opened,
            self._dispatcher,
            roster=run.roster,
            progress=run.progress,
            timeline=self._timeline,
            deadline_s=deadline_s,
        )
        self._single_units = bool(((opened.assignment.code.matrix != 0).sum(axis=1) <= 1).all())
        self._last: Decision = Waiting()

    async def run(self) -> RoundResult:
        """Assign every held row and wait for the decision.

        Raises:
            NotDecodable: By policy, when the deadline passed or no more rows can come.
            Corrupted: The rows contradict each other, and no more can come or the deadline passed.
            Unsound: An update is not finite, as the controller has computed, too.
        """
        deadline = self._next_deadline()
        await self._dispatcher.assign(sorted(self._opened.assignment.holders))
        if self._endorsement is not None:
            self._endorsement.begin()
        decision: Decoded | None = None
        while decision is None:
            event = await self._run.reception.next_event(deadline=deadline)
            if event is not None:
                decision = await self._take(event)
            elif isinstance(self._last, Decoded) and self._last.variance is not None:
                decision = self._last  # further rows would only lower its variance
            elif self._endorsement is not None and self._proves(self._endorsement):
                deadline = self._next_deadline()
            else:
                await self._policy.apply_deadline_policy(self._last)
                deadline = self._next_deadline()
        return RoundResult(opened=self._opened, decision=decision, timeline=self._timeline)

    def _next_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._deadline_s

    async def _take(self, event: RoundEvent) -> Decoded | None:
        """Take an event into the round; the decision if the round may be committed."""
        if isinstance(event, MembershipChanged):
            await self._policy.reassign_missing()
            return await self._decide()
        if isinstance(event, SectionsUnreadable):
            await self._dispatcher.send_again(event.learner)
            return None
        if isinstance(event, RecomputedStatements):
            return await self._take_computed(event)
        if self._endorsement is not None:
            self._endorsement.heard(event.learner)
        if isinstance(event, Arrived):
            if not await self._offer(event):
                return None
        else:
            for unit, digest in event.digests.items():
                self._round.report(unit, digest, learner=event.learner)
        if self._policy.rows_lost:
            await self._policy.reassign_missing()
        return await self._decide()

    async def _take_computed(self, event: RecomputedStatements) -> Decoded | None:
        """Take the controller's own computation."""
        assert self._endorsement is not None  # it has asked
        self._endorsement.take(event)
        again = event.values or isinstance(self._last, Corrupt)
        return await self._decide() if again else None

    def _proves(self, endorsement: Endorsement) -> bool:
        """True if the controller computes what learners have not borne out by the deadline."""
        last = self._last
        if isinstance(last, Decoded) and last.verdict is Verdict.COMMIT:
            endorsement.withholds(last, overdue=True)
        elif isinstance(last, Corrupt):
            endorsement.proves()
        return endorsement.computing

    async def _offer(self, event: Arrived) -> bool:
        """Offer a vector to the round; False if the decision cannot change."""
        reach("row.arrived")
        holder = self._opened.holder_of(event.row, event.learner)  # None: its sender has left
        self._timeline.arrived(event, holder)
        if holder is not None:
            holder.batch_bytes = event.batch_bytes
        try:
            fresh = self._round.offer(
                learner=event.learner,
                row=event.row,
                coded=event.coded,
                batch_digest=event.batch_digest,
                items=event.items,
            )
        except InvalidContribution as error:
            log.warning("refused learner=%d reason=%s", event.learner, error)
            if holder is not None:
                holder.expel(error)
            if isinstance(error, NotFinite) and not self._examined:
                self._examined = True  # once in a round, whatever learners send
                await self._examine(event.row, self._units_of(event.row))
            return False
        if self._round.decodable:
            self._timeline.decodable()
        return fresh

    def _units_of(self, row: int) -> Sequence[UnitIndex]:
        units = np.flatnonzero(self._round.contributions.coefficients(row))
        return [int(unit) for unit in units]

    async def _decide(self) -> Decoded | None:
        """The decision if the round may be committed now; liars are out of it from then on."""
        if self._endorsement is not None and self._endorsement.convict():
            self._last = Waiting()
            await self._policy.reassign_missing()
        if not self._round.decodable:
            await self._precompute()
            return None
        started = self._timeline.elapsed_s()
        with self._watchdog.phase("decoding"):
            self._last = decision = await self._in_thread(self._round.decide)
        self._timeline.decode_s = self._timeline.elapsed_s() - started
        if self._is_withheld(decision):
            return None
        if isinstance(decision, Decoded) and decision.verdict is Verdict.COMMIT:
            return self._without_culprit(decision)
        if isinstance(decision, Waiting) or self._opened.more_can_come:
            return None
        if isinstance(decision, Corrupt):
            await self._policy.recompute(decision)
            return None
        if decision.verdict is Verdict.HIGH_VARIANCE:
            return decision
        return self._without_culprit(self._policy.accept_inexact(decision))

    def _is_withheld(self, decision: Decision) -> bool:
        """True if a decision waits for further learners or for the controller."""
        endorsement = self._endorsement
        if endorsement is None or isinstance(decision, Waiting):
            return False
        if endorsement.settles(decision):
            return True
        if isinstance(decision, Corrupt):
            return not self._opened.more_can_come and endorsement.proves()
        return decision.verdict is Verdict.COMMIT and endorsement.withholds(decision)

    async def _precompute(self) -> None:
        """Work ahead of the decision while no event is queued."""
        if self._run.reception.idle and self._single_units:
            with self._watchdog.phase("preparing"):
                await self._in_thread(self._round.precompute)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Call on a thread, unless the rows are small and of one unit each."""
        if self._single_units and self._opened.identity.problem.vector_size <= SMALL:
            return call()
        return await asyncio.to_thread(call)

    def _without_culprit(self, decision: Decoded) -> Decoded:
        """Quarantine the learner whose contribution was left out."""
        if decision.culprit is not None:
            log.error("quarantined learner=%d reason=%s", decision.culprit, decision.reason)
            self._run.roster.quarantine(
                decision.culprit, decision.reason, iteration=self._round.iteration
            )
        return decision
