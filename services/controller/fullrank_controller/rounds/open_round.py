"""An open round, and the result of its decision."""

from dataclasses import dataclass

from fullrank.common.types import LearnerId
from fullrank.rounds.decision import Decoded
from fullrank.rounds.round import Round
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.row_assignment import RowAssignment
from fullrank_controller.rounds.timeline import Timeline


@dataclass(slots=True, kw_only=True)
class OpenRound:
    """A round with the ids and the assignment under which it runs."""

    identity: RunIdentity
    assignment: RowAssignment
    round: Round
    began_at: float
    """Loop time at which it was opened."""
    attempt: int = 0
    """Times that rows were added."""

    @property
    def ids(self) -> Ids:
        """Ids of the current attempt."""
        return self.identity.ids(
            epoch=self.assignment.epoch, iteration=self.round.iteration, attempt=self.attempt
        )

    def is_current(self, ids: Ids) -> bool:
        """True if a contribution belongs to this round, in any attempt so far."""
        return (
            self.identity.matches(ids, epoch=self.assignment.epoch)
            and ids.iteration == self.round.iteration
            and ids.attempt <= self.attempt
        )

    def holder_of(self, row: int, learner: LearnerId) -> Member | None:
        """The member that holds ``row`` if its index is ``learner``, otherwise None."""
        holder = self.assignment.holders.get(row)
        return holder if holder is not None and holder.learner == learner else None

    @property
    def more_can_come(self) -> bool:
        """True if a held row has not arrived."""
        return any(row not in self.round.rows for row in self.assignment.holders)

    def unanswered(self) -> list[Member]:
        """Holders of the rows that have not arrived, each once."""
        holders = self.assignment.holders
        return list({holders[row] for row in holders.keys() - self.round.rows})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """A decided round."""

    opened: OpenRound
    decision: Decoded
    timeline: Timeline

    @property
    def late(self) -> tuple[LearnerId, ...]:
        """Learners that were assigned rows and of which none had arrived."""
        return tuple(sorted(self.timeline.rows.keys() - set(self.opened.round.received)))
