"""Policies for a round that cannot be committed from the rows at hand."""

import asyncio
import logging

from fullrank.codes.targets import described
from fullrank.common.errors import Corrupted, DeadlinePassed, NotDecodable
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.config.tree import ControllerSettings
from fullrank.rounds.decision import Corrupt, Decision, Decoded
from fullrank.rounds.verification import disputants, disputed_units
from fullrank_controller.membership.roster import Roster
from fullrank_controller.progress import RunProgress
from fullrank_controller.rounds.dispatcher import ANY, Dispatcher
from fullrank_controller.rounds.open_round import OpenRound
from fullrank_controller.rounds.timeline import Timeline

log = logging.getLogger(__name__)

SILENT = 0.5
"""Share of the deadline for which a stream may pause within a vector."""


class RoundPolicy:
    """Reassigns missing rows, or waits or fails, as ``[controller]`` is configured.

    Args:
        settings: The policies.
        opened: The open round.
        dispatcher: Sends extra rows.
        roster: Attached learners.
        progress: Reports what the round waits for.
        timeline: Learners that were assigned rows.
        deadline_s: Deadline of the round.

    Attributes:
        rows_lost: True while units left with their learners and no other learner was idle.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        opened: OpenRound,
        dispatcher: Dispatcher,
        *,
        roster: Roster,
        progress: RunProgress,
        timeline: Timeline,
        deadline_s: float,
    ) -> None:
        self.rows_lost = False
        self._settings, self._opened, self._dispatcher = settings, opened, dispatcher
        self._roster, self._progress, self._timeline = roster, progress, timeline
        self._deadline_s = deadline_s
        self._recomputed = False

    async def reassign_missing(self) -> None:
        """Have the units that departed learners took along computed by others."""
        opened = self._opened
        opened.assignment.drop_absent(self._roster.eligible)
        units = opened.round.missing(opened.assignment.holders)
        self.rows_lost = bool(units) and not await self._dispatcher.assign_units({ANY: units})
        if self.rows_lost and not opened.more_can_come:
            self._stall(f"units {units} left with their learners, and no learner can compute them")
        else:
            self._progress.run()

    async def recompute(self, corrupt: Corrupt) -> None:
        """Once, by policy, add rows until the others suffice without any single learner.

        Leaving out the one that was wrong then gives a consistent result; a unit on which learners
        disagree is computed by a further one.

        Raises:
            Corrupted: That is not allowed, was done before, or no learner is idle. The error names
                the learners of which one is wrong.
        """
        round_ = self._opened.round
        if self._settings.undecodable == "recode" and not self._recomputed:
            self._recomputed = True
            wanted: dict[frozenset[LearnerId], list[UnitIndex]] = {}
            for learner in round_.received:
                wanted[frozenset({learner})] = round_.missing(without=learner)
            for unit, reporters in disputed_units(round_.reports).items():
                wanted.setdefault(reporters, []).append(unit)
            if await self._dispatcher.assign_units(wanted):
                return
        parties = disputants(round_.contributions)
        reason = f"iteration {round_.iteration}: {corrupt.reason}, and no proof shows who is wrong"
        self._roster.suspect(parties, corrupt.reason, iteration=round_.iteration)
        raise Corrupted(
            f"{reason}: one or more of {self._roster.named(parties, at=round_.iteration)}; look "
            "for failing memory or mixed builds there, raise code.tolerance, then resume"
        )

    def accept_inexact(self, decision: Decoded) -> Decoded:
        """The decision if inexact updates may be committed.

        Raises:
            NotDecodable: The policy does not allow it.
        """
        if self._settings.inexact == "commit":
            return decision
        round_ = self._opened.round
        raise NotDecodable(
            f"iteration {round_.iteration}: all rows have arrived and kappa = "
            f"{round_.condition:.1e} still leaves an error of {decision.error_bound:.1e}; "
            "choose a better conditioned code (cyclic, mds), or set controller.inexact=commit"
        )

    async def apply_deadline_policy(self, last: Decision) -> None:
        """Fail, recode or wait, after the deadline passed without a commit.

        Raises:
            NotDecodable: By policy ``fail``.
            Corrupted: The rows contradict each other and no more of them can be had.
        """
        round_ = self._opened.round
        awaited = sorted(self._timeline.rows.keys() - set(round_.received))
        reason = (
            f"iteration {round_.iteration}: rows of rank {round_.rank} do not determine "
            f"{described(self._opened.assignment.code.target)} after {self._deadline_s:.1f} s; "
            f"learners {awaited} have not answered"
        )
        if isinstance(last, Corrupt):
            await self.recompute(last)
            return
        if self._settings.undecodable == "fail":
            raise NotDecodable(f"{reason}; raise controller.deadline_s or code.tolerance")
        self._stall(reason)
        self._expel_stuck()
        if self._settings.undecodable == "recode":
            missing = round_.missing()
            if await self._dispatcher.assign_units({ANY: missing}):
                self._progress.run(reason)

    def _expel_stuck(self) -> None:
        """End streams that paused for long within a vector."""
        silent_s = SILENT * self._deadline_s
        before = asyncio.get_running_loop().time() - silent_s
        for member in set(self._opened.assignment.holders.values()):
            begun = member.begun
            if begun is not None and self._opened.is_current(begun) and member.sent_at < before:
                member.expel(DeadlinePassed(f"no more of its vector came for {silent_s:.1f} s"))

    def _stall(self, reason: str) -> None:
        if self._progress.stall(reason):
            log.warning("waiting reason=%s", reason)
