"""Digests that arrive after their iteration was committed."""

import asyncio
from collections.abc import Mapping

from fullrank.audit.ledger import Ledger
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.membership import Membership


class LateReports:
    """Files digests of committed iterations in the audit ledger.

    Args:
        identity: The run.
        membership: Tells which units a learner computes.

    Attributes:
        ledger: Digests of the last iterations.
    """

    def __init__(self, identity: RunIdentity, membership: Membership) -> None:
        self.ledger = Ledger()
        self._identity, self._membership = identity, membership
        self._arrived = asyncio.Event()

    def file(self, ids: Ids, learner: LearnerId, digests: Mapping[UnitIndex, bytes]) -> None:
        """Record digests if they are of this epoch and of the learner's own rows."""
        if self._identity.matches(ids, epoch=self._membership.epoch) and all(
            self._membership.computes(learner, unit) for unit in digests
        ):
            self.ledger.report(ids.iteration, learner, digests)
            self._arrived.set()

    async def next(self) -> None:
        """Return when the next digests are filed."""
        self._arrived.clear()
        await self._arrived.wait()
