"""Who holds which row, between rounds and within one; undecodable is a policy, never a hang."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from fullrank.common.errors import NotDecodable
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.config import RunConfig
from fullrank.runs.event_log import Dealt
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.membership.assignment import Deal, deal
from fullrank_controller.membership.roster import Member
from fullrank_controller.run_state import Run

log = logging.getLogger(__name__)


class Membership:
    """Keeps ``run.deal`` in step with the roster.

    Attributes:
        wanted: The code to deal, by default the configured one.
    """

    def __init__(self, config: RunConfig, run: Run) -> None:
        self.wanted = config.code
        self._config = config
        self._run = run

    async def assemble(self) -> None:
        """Wait for the N learners of the configuration, or go on without them after a deadline."""
        wanted, roster = self._config.learners, self._run.roster
        waiting = f"waiting for {wanted} learners"
        log.info(waiting)
        try:
            async with asyncio.timeout(self._config.controller.join_deadline_s):
                while len(roster.eligible) + len(roster.quarantined) < wanted:
                    self._run.message = waiting + self._useless()
                    await roster.changed()
        except TimeoutError:
            log.warning("learners_missing wanted=%d joined=%d", wanted, len(roster.eligible))
        self._run.message = ""

    async def settle(self, *, deadline_s: float) -> Deal:
        """Between rounds: C is made anew when it no longer serves.

        Another code is wanted, somebody joined, or too little may still be lost.

        Raises:
            NotDecodable: By policy ``fail``, when no code exists for those who are there.
        """
        run = self._run
        while True:
            eligible = run.roster.eligible
            following = await self._following(eligible)
            if following is not None:
                if following is not run.deal:
                    self._begin(following)
                run.state, run.message = pb.RUN_STATE_RUNNING, ""
                return following
            if eligible == run.roster.eligible:  # nobody came while a code was sought
                await self._stall(len(eligible), deadline_s)

    async def _following(self, eligible: Sequence[Member]) -> Deal | None:
        """The deal of the next round; None if those who are there can hold none."""
        current = self._run.deal
        if current is None:
            return await self._fresh(eligible)
        current.drop_absent(eligible)
        serves = current.asked == self.wanted and current.fill(eligible)
        if serves and current.remaining_tolerance() >= self._config.controller.min_tolerance:
            return current
        fresh = await self._fresh(eligible)
        if fresh is None:
            return current if current.decodable else None
        better = fresh.code.tolerance > current.remaining_tolerance()
        return fresh if better or not serves else current

    async def _fresh(self, eligible: Sequence[Member]) -> Deal | None:
        """The wanted code dealt to those who are there; None if they are too few for it."""
        current = self._run.deal
        return await asyncio.to_thread(
            deal,
            current.epoch + 1 if current else 0,
            eligible,
            asked=self.wanted,
            units=self._run.units,
            seed=self._config.seed,
            before=current,
        )

    def _begin(self, fresh: Deal) -> None:
        """An epoch."""
        run, code, least = self._run, fresh.code, self._config.controller.min_tolerance
        run.deal = fresh
        matrix = tuple(map(tuple, code.matrix.tolist()))
        run.event_log.append(Dealt(term=run.term, epoch=fresh.epoch, matrix=matrix))
        log.info(
            "epoch epoch=%d code=%s rows=%d spares=%d tolerance=%d certificate=%s moved_units=%d "
            "shared_domains=%d",
            fresh.epoch,
            code.name,
            code.rows,
            fresh.spares,
            code.tolerance,
            code.certificate,
            fresh.placement.changed,
            fresh.placement.shared,
        )
        run.caveats.pop("tolerance", None)
        if code.tolerance < least:
            run.caveats["tolerance"] = (
                f"{code.tolerance} losses can be borne, controller.min_tolerance asks for {least}: "
                "start more learners, or choose another code"
            )
            log.warning("tolerance %s", run.caveats["tolerance"])

    async def _stall(self, present: int, deadline_s: float) -> None:
        run = self._run
        reason = f"{present} learners cannot hold a {self.wanted.name} code of {run.units} units"
        reason += self._useless()
        run.state, run.message = pb.RUN_STATE_STALLED, reason
        log.warning("stalled reason=%s", reason)
        try:
            async with asyncio.timeout(deadline_s):
                await run.roster.changed()
        except TimeoutError:
            if self._config.controller.undecodable == "fail":
                raise NotDecodable(
                    f"{reason}; start more learners, or set controller.undecodable=wait"
                ) from None

    def _useless(self) -> str:
        """Who is there and cannot help, for a message."""
        unstable = len(self._run.roster.unstable)
        return f"; the bits of {unstable} depend on what they compute together" if unstable else ""

    def hand_out(
        self, current: Deal, units: Mapping[LearnerId | None, Sequence[UnitIndex]]
    ) -> dict[Member, dict[int, UnitIndex]]:
        """Within a round: deal units, each a row of its own, to learners that have nothing to do.

        Args:
            current: The deal to add rows to.
            units: By the learner that must not compute them; None where anybody may.

        Returns:
            The rows added with their units, by holder; none if everybody is busy.
        """
        opened = self._run.round
        assert opened is not None
        idle = [
            member
            for member in self._run.roster.eligible
            if opened.rows.issuperset(current.rows_of(member))
        ]
        dealt: dict[Member, dict[int, UnitIndex]] = {}
        for but, unit in ((but, unit) for but, own in units.items() for unit in own):
            member = next((each for each in idle if each.learner != but), None)
            if member is not None:
                idle.append(idle.pop(idle.index(member)))  # the next one has its turn
                row = opened.add(unit)
                current.holders[row] = member
                dealt.setdefault(member, {})[row] = unit
        return dealt
