"""Who holds which row, between rounds and within one; undecodable is a policy, never a hang."""

import asyncio
import logging

from fullrank.config import RunConfig
from fullrank.errors import NotDecodable
from fullrank.history import Dealt
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.dealing import Deal, deal
from fullrank_controller.run import Run

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
        self._run.message = f"waiting for {wanted} learners"
        log.info(self._run.message)
        try:
            async with asyncio.timeout(self._config.controller.join_deadline_s):
                while len(roster.eligible) + len(roster.quarantined) < wanted:
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
            if run.deal is not None and self._holds(run.deal):
                run.state, run.message = pb.RUN_STATE_RUNNING, ""
                return run.deal
            fresh = self._fresh()
            if fresh is not None:
                run.deal = fresh
                matrix = tuple(map(tuple, fresh.code.matrix.tolist()))
                run.notebook.note(Dealt(term=run.term, epoch=fresh.epoch, matrix=matrix))
                run.state, run.message = pb.RUN_STATE_RUNNING, ""
                log.info(
                    "epoch epoch=%d code=%s rows=%d spares=%d tolerance=%d certificate=%s "
                    "moved_units=%d shared_domains=%d",
                    fresh.epoch,
                    fresh.code.name,
                    fresh.code.rows,
                    fresh.spares,
                    fresh.code.tolerance,
                    fresh.code.tolerance.certificate,
                    fresh.placement.changed,
                    fresh.placement.shared,
                )
                return fresh
            await self._stall(len(eligible), deadline_s)

    def _fresh(self) -> Deal | None:
        """The wanted code dealt to those who are there; None if they are too few for it."""
        run = self._run
        return deal(
            run.deal.epoch + 1 if run.deal else 0,
            run.roster.eligible,
            asked=self.wanted,
            units=run.units,
            seed=self._config.seed,
            before=run.deal,
        )

    def outlived(self, current: Deal) -> bool:
        """Within a round: its rows cannot suffice any more, but those of another code could."""
        run = self._run
        assert run.round is not None
        lost = current.reachable_rank(run.round.rows) < run.units
        return lost and self._fresh() is not None

    def _holds(self, current: Deal) -> bool:
        """Whether C still serves: it is wanted, nobody came who could hold a row, enough are left.

        Spares take over the rows of those who left.
        """
        eligible = self._run.roster.eligible
        current.drop_absent(eligible)
        if current.asked != self.wanted:
            return False
        if len(eligible) - len(current.holders) > current.spares:
            return False
        current.fill(eligible)
        return current.remaining_tolerance() >= self._config.controller.min_tolerance

    async def _stall(self, present: int, deadline_s: float) -> None:
        run = self._run
        reason = f"{present} learners cannot hold a {self.wanted.name} code of {run.units} units"
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

    def mend(self, current: Deal) -> list[int]:
        """Within a round: rows that were vacated, needed, and are now dealt to others."""
        run = self._run
        assert run.round is not None
        eligible, received = run.roster.eligible, run.round.rows
        current.drop_absent(eligible)
        filled: list[int] = []
        if current.reachable_rank(received) < run.units:
            filled = [row for row in current.fill(eligible) if row not in received]
        if current.reachable_rank(received) == run.units:
            run.state, run.message = pb.RUN_STATE_RUNNING, ""
        else:
            run.state, run.message = pb.RUN_STATE_STALLED, f"rows {current.vacant()} are vacant"
            log.warning("stalled reason=%s", run.message)
        return filled
