"""Digests that arrive after their iteration was committed."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fullrank.audit.ledger import WINDOW, Ledger
from fullrank.common.types import LearnerId, Matrix, UnitIndex
from fullrank.run.assignment import RowAssignment
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster


class _Held(NamedTuple):
    """Holders of the rows of a committed iteration."""

    epoch: int
    matrix: Matrix
    extra_rows: Mapping[int, UnitIndex]
    rows: Mapping[int, tuple[LearnerId, bytes]]
    """Index and lease of the holder of each row."""

    def leases(self, learner: LearnerId, unit: UnitIndex) -> set[bytes]:
        """Leases of the learner of an index that held the unit, at most one."""
        return {
            lease
            for row, (holder, lease) in self.rows.items()
            if holder == learner and self._combines(row, unit)
        }

    def _combines(self, row: int, unit: UnitIndex) -> bool:
        extra = self.extra_rows.get(row)
        return bool(self.matrix[row, unit]) if extra is None else extra == unit


class LateReports:
    """Files digests of committed iterations in the audit ledger.

    A learner may report the units that it held in the iteration, whatever it holds now: a change
    of the epoch hides no report.

    Args:
        identity: The run.
        roster: Attached learners.

    Attributes:
        ledger: Digests of the last iterations.
    """

    def __init__(self, identity: RunIdentity, roster: Roster) -> None:
        self.ledger = Ledger()
        self._identity, self._roster = identity, roster
        self._held: dict[int, _Held] = {}
        self._arrived = asyncio.Event()

    def commit(
        self,
        assignment: RowAssignment[Member],
        iteration: int,
        committed: Sequence[bytes],
        reports: Mapping[LearnerId, Mapping[UnitIndex, bytes]],
    ) -> None:
        """Open an iteration for comparison; arguments as of ``Ledger.commit``.

        Args:
            assignment: Holders of the rows of the iteration, added ones included.
            iteration: Its number.
            committed: Reports that match the committed update.
            reports: Reports before the commit.
        """
        self._held[iteration] = _Held(
            assignment.epoch,
            assignment.code.matrix,
            assignment.extra_rows,
            {row: (held.learner, held.lease) for row, held in assignment.holders.items()},
        )
        self._held.pop(iteration - WINDOW, None)
        self.ledger.commit(iteration, committed, reports)

    def file(self, ids: Ids, learner: LearnerId, digests: Mapping[UnitIndex, bytes]) -> None:
        """Record digests of units that the learner held, unless it was found wrong."""
        held, member = self._held.get(ids.iteration), self._roster.member(learner)
        if held is None or not self._identity.matches(ids, epoch=held.epoch):
            return
        if member is not None and member.quarantined:
            return
        for unit in digests:
            leases = held.leases(learner, unit)
            if not leases or (member is not None and member.lease not in leases):
                return
        self.ledger.report(ids.iteration, learner, digests)
        self._arrived.set()

    async def next(self) -> None:
        """Return when the next digests are filed."""
        self._arrived.clear()
        await self._arrived.wait()
