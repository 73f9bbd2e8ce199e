"""The state that the driver writes and the servicer reads; all on the event loop."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fullrank.audit.ledger import Ledger
from fullrank.common.errors import StaleTerm
from fullrank.common.types import LearnerId, RunTerm, UnitIndex, Vector
from fullrank.planning import Plan
from fullrank.rounds.round import Round
from fullrank.runs.event_log import EventLog
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.membership.assignment import Deal
from fullrank_controller.membership.roster import Roster
from fullrank_controller.rounds.events import Event


@dataclass(slots=True, kw_only=True)
class Run:
    """One run under one term."""

    name: str
    term: int
    iterations: int
    units: int
    vector_size: int
    """P, entries of a coded vector."""
    welcome: pb.Welcome
    """Complete but for the learner index."""
    event_log: EventLog = field(default_factory=EventLog)
    roster: Roster = field(default_factory=Roster)
    inbox: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    bytes_received: Counter[str] = field(default_factory=Counter)
    state: pb.RunState.ValueType = pb.RUN_STATE_STARTING
    message: str = ""
    caveats: dict[str, str] = field(default_factory=dict)
    """What this run does not promise: a line for each promise, by its name."""
    committed: int = 0
    attempt: int = 0
    deal: Deal | None = None
    round: Round | None = None
    """The open round; None between iterations."""
    round_began_at: float = 0.0
    """When its first assignment was written, loop time."""
    acknowledged: int = 0
    """One past the last transition that replay has stored."""
    plan: Plan | None = None
    """What the planner said last; None where the code is not its choice."""
    ledger: Ledger = field(default_factory=Ledger)
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when digests of a committed iteration have come."""
    own_digests: Mapping[UnitIndex, bytes] = field(default_factory=dict)
    """What the controller itself computed for the open round."""
    _later_term: int = 0
    _deposed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def run_term(self) -> RunTerm:
        """Ours."""
        return RunTerm(self.name, self.term)

    def meet(self, served: RunTerm) -> None:
        """Take note of whom a learner served last.

        Raises:
            StaleTerm: It was a later controller of this run.
        """
        if served.run == self.name and served.term > self.term:
            self._later_term = served.term
            self._deposed.set()
            raise self._deposition()

    async def deposed(self) -> None:
        """Wait, maybe for ever, until a peer tells of a later term; then raise ``StaleTerm``."""
        await self._deposed.wait()
        raise self._deposition()

    def _deposition(self) -> StaleTerm:
        return StaleTerm(
            f"a learner has served term {self._later_term} of run {self.name}, this controller is "
            f"of term {self.term}: another one is in office; nothing more is committed here"
        )

    def whereabouts(self) -> str:
        """How far the run is, and with whom."""
        learners = [member.learner for member in self.roster.members]
        return f"iteration {self.committed} of {self.iterations}, learners {learners}"

    @property
    def _epoch(self) -> int:
        return self.deal.epoch if self.deal else 0

    @property
    def ids(self) -> Ids:
        """Ids of the open round."""
        return Ids(
            run=self.name,
            term=self.term,
            epoch=self._epoch,
            iteration=self.committed,
            attempt=self.attempt,
        )

    def is_current(self, ids: Ids) -> bool:
        """Whether a contribution belongs to the open round (any attempt so far)."""
        return (
            self.round is not None
            and self._is_of_epoch(ids)
            and ids.iteration == self.committed
            and ids.attempt <= self.attempt
        )

    def _is_of_epoch(self, ids: Ids) -> bool:
        return (ids.run, ids.term, ids.epoch) == (self.name, self.term, self._epoch)

    def hear_late(self, ids: Ids, learner: LearnerId, digests: Mapping[UnitIndex, bytes]) -> None:
        """Take digests of an iteration that is committed, if they are of the learner's own row."""
        if self._is_of_epoch(ids) and all(self.computes(learner, unit) for unit in digests):
            self.ledger.report(ids.iteration, learner, digests)
            self.heard.set()

    def holds(self, learner: LearnerId, row: int) -> bool:
        """Whether the row is the learner's."""
        holder = self.deal.holders.get(row) if self.deal else None
        return holder is not None and holder.learner == learner

    def computes(self, learner: LearnerId, unit: UnitIndex) -> bool:
        """Whether the unit is in a row of the learner's."""
        return any(
            each.learner == learner and self._coefficients(row)[unit]
            for row, each in (self.deal.holders.items() if self.deal else ())
        )

    def _coefficients(self, row: int) -> Vector:
        """Of a row that is held; those that were added are there while a round is open."""
        assert self.deal is not None
        return self.round.coefficients(row) if self.round else self.deal.code.matrix[row]

    def has_received(self, row: int) -> bool:
        """Whether the open round has the row."""
        return self.round is not None and row in self.round.rows

    def status(self) -> pb.GetStatusResponse:
        """What GetStatus answers."""
        current = self.deal
        rows = {each: current.rows_of(each) if current else [] for each in self.roster.members}
        now = asyncio.get_running_loop().time()
        return pb.GetStatusResponse(
            run=self.name,
            term=self.term,
            epoch=self._epoch,
            state=self.state,
            iterations_committed=self.committed,
            iterations=self.iterations,
            message=self.message,
            rank=self.round.rank if self.round else 0,
            units=self.units,
            caveats=self.caveats.values(),
            round_s=now - self.round_began_at if self.round else 0.0,
            learners=[
                pb.LearnerStatus(
                    learner=member.learner,
                    host=member.host,
                    domain="/".join(member.domain),
                    rows=rows[member],
                    fingerprint=member.fingerprint,
                    quarantined=member.quarantined,
                    answered=any(map(self.has_received, rows[member])),
                    silent_s=now - member.heard_at,
                )
                for member in self.roster.members
            ],
        )
