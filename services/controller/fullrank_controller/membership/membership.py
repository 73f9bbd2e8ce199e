"""The assignment of rows to learners between rounds."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from fullrank.common.errors import NotDecodable
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.config.tree import RunConfig
from fullrank.run.assignment import RowAssignment, make_assignment
from fullrank.runs.events import EpochBegan, EventLog
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member, Numerics, excluded
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress

log = logging.getLogger(__name__)


class Membership:
    """Keeps the assignment in step with the roster.

    Args:
        config: The resolved configuration.
        identity: The run.
        roster: Attached learners.
        progress: Reports what the run waits for.
        event_log: Receives each new epoch.
        fix_numerics: Makes the numerics of the first epoch's learners those of the run, unless it
            has some.

    Attributes:
        assignment: The assignment of this epoch; None before the first.
        requested: The code to assign, by default the configured one.
    """

    def __init__(
        self,
        config: RunConfig,
        identity: RunIdentity,
        *,
        roster: Roster,
        progress: RunProgress,
        event_log: EventLog,
        fix_numerics: Callable[[Numerics], None],
    ) -> None:
        self.assignment: RowAssignment[Member] | None = None
        self.requested = config.code
        self._config, self._identity = config, identity
        self._roster, self._progress, self._event_log = roster, progress, event_log
        self._fix_numerics = fix_numerics

    @property
    def epoch(self) -> int:
        """Number of the current epoch; 0 before the first."""
        return self.assignment.epoch if self.assignment else 0

    def computes(self, learner: LearnerId, unit: UnitIndex) -> bool:
        """True if the unit is part of a row that the learner holds."""
        return self.assignment is not None and self.assignment.computes(learner, unit)

    async def assemble(self, *, resumed: bool) -> None:
        """Wait for the configured number of learners, up to a deadline.

        A resumed run waits only for as many as can decode: some of the former ones may be gone.
        """
        wanted, roster = self._config.learners, self._roster
        waiting = f"waiting for {wanted} learners"
        log.info(waiting)
        try:
            async with asyncio.timeout(self._config.controller.join_deadline_s):
                while len(roster.eligible) + self._quarantined() < wanted:
                    eligible = roster.eligible
                    if resumed and await self._make(eligible) is not None:
                        break
                    if eligible == roster.eligible:  # otherwise one has joined meanwhile
                        self._progress.start(waiting + excluded(roster.members, roster.numerics))
                        await roster.changed()
        except TimeoutError:
            log.warning("learners_missing wanted=%d joined=%d", wanted, len(roster.eligible))
        self._progress.start("")

    async def settle(self, *, deadline_s: float) -> RowAssignment[Member]:
        """The assignment of the next round.

        It is made anew, as another epoch, when another code is requested, a learner joined, or too
        few losses would still be tolerated.

        Raises:
            NotDecodable: By policy ``fail``, when no code exists for the learners that are there.
        """
        stalled = False
        while True:
            eligible = self._roster.eligible
            following = await self._following(eligible)
            if following is not None:
                if following is not self.assignment:
                    self.begin_epoch(following)
                if stalled:
                    self._progress.run()
                return following
            if eligible == self._roster.eligible:  # otherwise a learner joined during the search
                stalled = True
                await self._stall(len(eligible), deadline_s)

    async def _following(self, eligible: Sequence[Member]) -> RowAssignment[Member] | None:
        """The assignment of the next round; None if the eligible learners are too few."""
        current = self.assignment
        if current is None:
            return await self._make(eligible)
        current.drop_absent(eligible)
        serves = current.requested == self.requested and current.fill(eligible)
        if serves and current.remaining_tolerance() >= 0:
            return current
        fresh = await self._make(eligible)
        if fresh is None:
            return current if current.decodable else None
        better = fresh.code.tolerance > current.remaining_tolerance()
        return fresh if better or not serves else current

    async def _make(self, eligible: Sequence[Member]) -> RowAssignment[Member] | None:
        return await asyncio.to_thread(
            make_assignment,
            self.epoch + 1 if self.assignment else 0,
            eligible,
            requested=self.requested,
            units=self._identity.units,
            seed=self._config.seed,
            target=self._identity.problem.target,
            previous=self.assignment,
        )

    async def bears_the_loss(self) -> bool:
        """True if the eligible learners can hold a code as tolerant as the one in use."""
        if self.assignment is None:
            return False
        fresh = await self._make(self._roster.eligible)
        return fresh is not None and fresh.code.tolerance >= self.assignment.code.tolerance

    def begin_epoch(self, fresh: RowAssignment[Member]) -> None:
        """Use an assignment from the next round on."""
        self.assignment = fresh
        first = next(iter(fresh.holders.values()))
        if self._roster.numerics is None and first.numerics is not None:
            self._fix_numerics(first.numerics)
        code = fresh.code
        target = () if code.recovers_units else code.target.tolist()
        self._event_log.append(
            EpochBegan(
                term=self._identity.term,
                epoch=fresh.epoch,
                matrix=tuple(map(tuple, code.matrix.tolist())),
                target=tuple(map(tuple, target)),
            )
        )
        log.info(
            "epoch epoch=%d code=%s rows=%d rows_per_learner=%d spares=%d tolerance=%d "
            "certificate=%s moved_units=%d shared_domains=%d",
            fresh.epoch,
            code.name,
            code.rows,
            code.rows_per_learner,
            fresh.spares,
            code.tolerance,
            code.certificate,
            fresh.placement.changed,
            fresh.placement.shared,
        )

    async def _stall(self, present: int, deadline_s: float) -> None:
        """Wait for a change of the roster up to the deadline, then apply the policy."""
        roster = self._roster
        reason = (
            f"{present} learners cannot hold a {self.requested.name} code of "
            f"{self._identity.units} units{excluded(roster.members, roster.numerics)}"
        )
        self._progress.stall(reason)
        log.warning("stalled reason=%s", reason)
        try:
            async with asyncio.timeout(deadline_s):
                await self._roster.changed()
        except TimeoutError:
            if self._config.controller.undecodable == "fail":
                raise NotDecodable(
                    f"{reason}; start more learners, or set controller.undecodable=wait"
                ) from None

    def _quarantined(self) -> int:
        """Number of members that would be ready but for a wrong contribution."""
        return sum(member.ready and bool(member.quarantined) for member in self._roster.members)
