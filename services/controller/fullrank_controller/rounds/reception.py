"""The meeting point of learners' streams and the open round."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fullrank.audit.ledger import Ledger
from fullrank.codes.base import is_lone_unit
from fullrank.common.errors import InvalidContribution
from fullrank.common.types import EncodedVector, LearnerId, UnitIndex
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import Arrived, Reported, RoundEvent
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.membership import Membership
from fullrank_controller.membership.roster import Roster


class Reception:
    """Admits contributions to the open round and queues them for the round runner.

    Args:
        identity: The run.
        membership: Tells which units a learner computes.
        roster: Attached learners.
        ledger: Receives digests of iterations that are already committed.

    Attributes:
        opened: The open round; None between iterations.
        bytes_received: Bytes admitted so far from streams, by kind.
        units_computed: Units that learners have reported so far, also late ones.
    """

    def __init__(
        self, identity: RunIdentity, membership: Membership, roster: Roster, ledger: Ledger
    ) -> None:
        self.opened: OpenRound[Member] | None = None
        self.bytes_received: Counter[str] = Counter()
        self.units_computed = 0
        self._identity, self._membership = identity, membership
        self._roster, self._ledger = roster, ledger
        self._filed = asyncio.Event()
        self._events: asyncio.Queue[tuple[Ids | None, RoundEvent]] = asyncio.Queue()
        """Events of the round of some ids, or of whichever is open."""

    def open(self, opened: OpenRound[Member]) -> None:
        """Admit contributions to a round from now on."""
        self.opened = opened

    def close(self) -> None:
        """Refuse contributions until the next round, and drop the extra rows of this one."""
        if self.opened is not None:
            self.opened.assignment.drop_extra_rows()
        self.opened = None

    def _is_current(self, ids: Ids) -> bool:
        return self.opened is not None and self._identity.is_current(ids, self.opened)

    def admit(self, ids: Ids, *, learner: LearnerId, row: int) -> pb.Refused | None:
        """Check the header of a coded vector; a refusal if it is late or repeated.

        Raises:
            InvalidContribution: The row is not the learner's.
        """
        opened = self.opened
        if opened is None or not self._identity.is_current(ids, opened):
            text = f"iteration {ids.iteration} is committed or of another term"
            return pb.Refused(ids=ids, reason=pb.REFUSAL_STALE, message=text)
        if opened.holder_of(row, learner) is None:
            raise InvalidContribution(f"coded.row {row} was not assigned to this learner")
        if row in opened.round.rows:
            text = f"row {row} was already received"
            return pb.Refused(ids=ids, reason=pb.REFUSAL_DUPLICATE, message=text)
        return None

    def room_for(self, row: int) -> EncodedVector:
        """Room for the vector of an admitted row, in the precision that follows from the row."""
        assert self.opened is not None  # it has admitted the row
        coefficients = self.opened.round.contributions.coefficients(row)
        size = self._identity.problem.vector_size
        return np.empty(size, np.float32) if is_lone_unit(coefficients) else np.empty(size)

    def arrive(self, ids: Ids, event: Arrived, *, streamed: bool) -> None:
        """Queue a complete vector, which came by stream or lay in shared memory."""
        if streamed:
            self.bytes_received["coded"] += event.coded.nbytes
        self._roster.contributes(event.learner, ids.iteration)
        self._events.put_nowait((ids, event))

    def report(self, learner: LearnerId, reports: Sequence[pb.UnitDone]) -> None:
        """Queue the digests of one message, or file them if their iteration is committed.

        Raises:
            InvalidContribution: A unit of the open round is not in a row of the learner.
        """
        self.units_computed += len(reports)
        current = [done for done in reports if self._is_current(done.ids)]
        for done in current:
            if not self._membership.computes(learner, done.unit):
                raise InvalidContribution(f"units: unit {done.unit} is not of this learner's row")
        if current:
            self.bytes_received["digests"] += self._identity.report_bytes * len(current)
            self._roster.contributes(learner, current[-1].ids.iteration)
            ids, digests = current[-1].ids, {done.unit: done.digest for done in current}
            self._events.put_nowait((ids, Reported(learner=learner, digests=digests)))
        elif reports:
            digests = {done.unit: done.digest for done in reports}
            self._file(reports[-1].ids, learner, digests)

    def notify(self, event: RoundEvent, ids: Ids | None = None) -> None:
        """Queue news that carry no contribution, to the round of some ids or to any."""
        self._events.put_nowait((ids, event))

    @property
    def idle(self) -> bool:
        """True if no event is queued."""
        return self._events.empty()

    async def next_event(self, *, deadline: float) -> RoundEvent | None:
        """The next event of the open round; None at the deadline, after all queued events.

        Args:
            deadline: Loop time.
        """
        while (news := await self._next(deadline)) is not None:
            ids, event = news
            if ids is None or self._is_current(ids):
                return event
            if isinstance(event, Reported):
                self._file(ids, event.learner, event.digests)
        return None

    async def _next(self, deadline: float) -> tuple[Ids | None, RoundEvent] | None:
        if not self._events.empty():
            return self._events.get_nowait()
        try:
            async with asyncio.timeout_at(deadline):
                return await self._events.get()
        except TimeoutError:
            return None

    def file_queued_reports(self) -> None:
        """File the digests that were queued when the round was decided."""
        for _ in range(self._events.qsize()):
            ids, event = self._events.get_nowait()
            if isinstance(event, Reported) and ids is not None:
                self._file(ids, event.learner, event.digests)
            else:
                self._events.put_nowait((ids, event))

    def _file(self, ids: Ids, learner: LearnerId, digests: Mapping[UnitIndex, bytes]) -> None:
        """File digests of a committed iteration, unless their learner was found wrong."""
        member = self._roster.member(learner)
        if not self._identity.matches(ids, epoch=ids.epoch):
            return
        if member is not None and member.quarantined:
            return
        lease = member.lease if member is not None else None
        if self._ledger.file(ids.iteration, learner, digests, epoch=ids.epoch, lease=lease):
            self._roster.contributes(learner, ids.iteration)
        self._filed.set()

    async def filed(self) -> None:
        """Return when the next digests of a committed iteration have come."""
        self._filed.clear()
        await self._filed.wait()
