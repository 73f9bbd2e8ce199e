"""The commit of a round, held back until enough statements support it (ADR 55)."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Generic

from fullrank.common.errors import Corrupted
from fullrank.common.types import LearnerId
from fullrank.rounds.decision import Corrupt, Decoded
from fullrank.rounds.quorum import Quorum, exclude, units_of
from fullrank.rounds.reports import Claim
from fullrank.rounds.round import Round
from fullrank.run.assignment import HolderT, Members, RowAssignment


class Endorsement(Generic[HolderT]):
    """Lets a round commit values that enough learners state alike or the controller computed.

    Only learners that are attached and not quarantined have a voice, and those of one failure
    domain have one together. Whatever the rule, the controller computes what learners disagree on.

    Args:
        quorum: The rule of the round.
        round_: Received rows and reports.
        assignment: Holders of the rows.
        members: Attached learners.
        recomputes: True if the controller computes the bits of the run.

    Attributes:
        wanted: Statements that the controller is to compute, until they are taken from here.
        convicted: Learners that were refuted, of which nothing counts in the round any more.
    """

    def __init__(
        self,
        quorum: Quorum,
        round_: Round,
        assignment: RowAssignment[HolderT],
        members: Members[HolderT],
        *,
        recomputes: Callable[[], bool],
    ) -> None:
        self.wanted: list[Claim] = []
        self.convicted: set[LearnerId] = set()
        self._quorum, self._round, self._assignment = quorum, round_, assignment
        self._members, self._recomputes = members, recomputes
        self._awaited: set[Claim] = set()
        """Statements that the controller is computing."""
        self._failed = False
        """True once a computation has failed, because replay gave no minibatch."""
        self._heard: dict[LearnerId, HolderT | None] = {}
        """Senders by index; None where two learners have had the index during the round."""

    def begin(self) -> None:
        """Have the statements computed that were drawn for this round."""
        if not self._ask(self._quorum.drawn):
            self._quorum.drawn = frozenset()

    def heard(self, learner: LearnerId) -> None:
        """Note which learner an index stands for in this round."""
        member = self._members.member(learner)
        known = self._heard.setdefault(learner, member)
        if known is not member:
            self._heard[learner] = None

    def withholds(self, decision: Decoded, *, overdue: bool = False) -> bool:
        """True if a decision is not borne out yet; what learners cannot bear out is computed.

        Args:
            decision: From contributions that agree.
            overdue: True if no further learner is waited for.

        Raises:
            Corrupted: It is overdue or disputed, and the controller cannot compute it.
        """
        lacking = self._quorum.lacking(self._round, self._voices(), without=decision.culprit)
        alone = [
            claim
            for claim, voices in lacking.items()
            if overdue or len(voices | self._pending(claim)) <= self._quorum.faults
        ]
        if not self._ask(alone) and (overdue or self._quorum.disputed(self._round)):
            raise Corrupted(self._unproved(alone))
        return bool(lacking)

    def settles(self, decision: Decoded | Corrupt) -> bool:
        """True if the controller computes the statements on which learners disagree."""
        if not self._quorum.faults and isinstance(decision, Decoded) and decision.culprit is None:
            return False  # its reports agree; hashing the vectors of sums takes time
        return self._settles(self._quorum.disputed(self._round))

    def proves(self) -> bool:
        """True if the controller computes what shows who is wrong in a corrupt round."""
        return self._settles(self._quorum.suspected(self._round))

    def _settles(self, claims: Sequence[Claim]) -> bool:
        return bool(claims) and not self._failed and self._ask(claims)

    @property
    def computing(self) -> bool:
        """True while the controller computes statements."""
        return bool(self._awaited)

    def take(self, claims: Collection[Claim], values: Mapping[Claim, bytes]) -> None:
        """Take the values of statements that were wanted; none if they could not be computed."""
        self._awaited -= set(claims)
        self._failed = not values
        self._quorum.computed.update(values)

    def convict(self) -> dict[LearnerId, str]:
        """Drop the learners that state other values than the computed ones.

        To be called before every decision: a lie may come before or after the computed value.

        Returns:
            Those learners, each with the reason.
        """
        round_ = self._round
        liars = self._quorum.contradicted(round_)
        if liars:
            exclude(round_, liars.keys())
            self.convicted |= liars.keys()
        return {
            learner: f"units {list(claim.units)} of iteration {round_.iteration} were wrong, "
            "computed again"
            for learner, claim in sorted(liars.items())
        }

    def _ask(self, claims: Collection[Claim]) -> bool:
        """Have statements computed unless they are already; False if the controller cannot."""
        new = [claim for claim in claims if claim not in self._awaited]
        if new and not self._recomputes():
            return False
        self._awaited.update(new)
        self.wanted += new
        return True

    def _voices(self) -> dict[LearnerId, Hashable]:
        """Voice of each learner that was heard, is attached and is not quarantined."""
        return {
            learner: member.domain
            for learner, member in self._heard.items()
            if member is not None
            and not member.quarantined
            and self._members.member(learner) is member
        }

    def _pending(self, claim: Claim) -> set[Hashable]:
        """Voices of the learners that may still make a statement."""
        round_, holders = self._round, self._assignment.holders
        stated = {
            row: Claim.of_row(round_.contributions.coefficients(row))
            for row in holders.keys() - round_.rows
        }
        return {
            holders[row].domain
            for row, other in stated.items()
            if (claim.units[0] in other.units if claim.is_report else claim == other)
        }

    def _unproved(self, claims: Iterable[Claim]) -> str:
        iteration, faults = self._round.iteration, self._quorum.faults
        units, reports = units_of(claims), self._round.reports
        parties = [learner for learner, own in reports.items() if not own.keys().isdisjoint(units)]
        return (
            f"iteration {iteration}: fewer than {faults + 1} learners in different failure domains "
            f"agree on units {units}, and the controller, whose numeric fingerprint is not that of "
            "the run, cannot compute them; add learners or raise code.tolerance; they were "
            f"reported by {self._members.named(parties, at=iteration)}"
        )
