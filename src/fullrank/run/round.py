"""The open round of a run: what is ordered as reports and rows arrive, and when it may commit.

A pure state machine over a ``Round``: it assigns the rows, judges the received ones as soon as they
determine the target, has what departed learners took along computed by others, and holds the commit
back until enough statements support it. It knows no clock, thread, file or socket.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic

import numpy as np

from fullrank.codes.targets import described
from fullrank.common.errors import (
    Corrupted,
    DeadlinePassed,
    FullrankError,
    InvalidContribution,
    NotDecodable,
    NotFinite,
)
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.rounds.decision import Corrupt, Decision, Decoded, Verdict, Waiting
from fullrank.rounds.quorum import Quorum
from fullrank.rounds.round import Round
from fullrank.rounds.verification import disputants, disputed_units
from fullrank.run.assignment import ANY, ExtraRows, HolderT, Members, RowAssignment
from fullrank.run.endorsement import Endorsement
from fullrank.run.policies import DEFAULT_POLICIES, RoundPolicies
from fullrank.run.round_orders import (
    AddRows,
    Arrived,
    Assign,
    Begun,
    Commit,
    DeadlineEnded,
    Decided,
    Decode,
    Examine,
    Expel,
    Fail,
    GraceEnded,
    MembershipChanged,
    Precompute,
    Quarantine,
    Recompute,
    RecomputedStatements,
    Reported,
    Resume,
    RoundEvent,
    RoundOrder,
    SectionsUnreadable,
    SendAgain,
    SetTimer,
    Stall,
    Suspect,
)

SILENT = 0.5
"""Share of the deadline for which a stream may pause within a vector."""


class OpenRound(Generic[HolderT]):
    """A round with the assignment under which it runs.

    Args:
        round_: Received rows and reports.
        assignment: The code and the holders of its rows.
        members: The learners of the run.
        policies: For rounds that cannot be committed.
        quorum: The rule by which it may be committed; None where reports may differ and all be
            right.
        recomputes: True if this process computes the bits of the run.
        began_at: Time of the host's clock at which it was opened, seconds.

    Attributes:
        began_at: As given.
        round: As given.
        assignment: As given.
        attempt: Times that rows were added because the others could not decide the round.
        assigned: Learners that were assigned rows.
    """

    def __init__(
        self,
        round_: Round,
        assignment: RowAssignment[HolderT],
        *,
        members: Members[HolderT],
        policies: RoundPolicies = DEFAULT_POLICIES,
        quorum: Quorum | None = None,
        recomputes: Callable[[], bool] = lambda: False,
        began_at: float = 0.0,
    ) -> None:
        self.round, self.assignment, self.began_at = round_, assignment, began_at
        self.attempt = 0
        self.assigned: set[LearnerId] = set()
        self._members, self._policies = members, policies
        self._endorsement: Endorsement[HolderT] | None = None
        if quorum is not None:
            self._endorsement = Endorsement(
                quorum, round_, assignment, members, recomputes=recomputes
            )
        self._extra = ExtraRows(round_, assignment, members)
        self._last: Decision = Waiting()
        self._orders: list[RoundOrder] = []
        self._is_late = self._rows_lost = self._added_for_doubt = self._examined = False
        """``_rows_lost``: units left with their learners and no other learner was idle."""

    def holder_of(self, row: int, learner: LearnerId) -> HolderT | None:
        """The member that holds ``row`` if its index is ``learner``, otherwise None."""
        holder = self.assignment.holders.get(row)
        return holder if holder is not None and holder.learner == learner else None

    @property
    def hedged(self) -> int:
        """Number of units that idle learners were given while their holders were late."""
        return self._extra.hedged

    @property
    def more_can_come(self) -> bool:
        """True if a held row has not arrived."""
        return any(row not in self.round.rows for row in self.assignment.holders)

    def unanswered(self) -> list[HolderT]:
        """Holders of the rows that have not arrived, each once."""
        holders = self.assignment.holders
        return list({holders[row] for row in holders.keys() - self.round.rows})

    def step(self, event: RoundEvent) -> list[RoundOrder]:
        """Take an event; returns what is to be done, in order and before the next event."""
        self._orders = []
        try:
            self._take(event)
        except FullrankError as error:
            self._orders.append(Fail(error))
        if self._endorsement is not None and self._endorsement.wanted:
            self._orders.append(Recompute(tuple(self._endorsement.wanted)))
            self._endorsement.wanted.clear()
        return self._orders

    def _take(self, event: RoundEvent) -> None:
        match event:
            case Begun():
                self._begin()
            case Arrived() | Reported():
                self._contribute(event)
            case Decided(decision):
                self._judge(decision)
            case MembershipChanged():
                self._reassign_missing()
                self._hedge()
                self._decide()
            case GraceEnded():
                self._is_late = True
                self._hedge()
            case SectionsUnreadable(learner):
                self._orders.append(SendAgain(learner))
            case RecomputedStatements():
                self._take_computed(event)
            case DeadlineEnded(paused_s):
                self._pass_deadline(paused_s)

    def _begin(self) -> None:
        holders = self.assignment.holders
        self.assigned.update(holder.learner for holder in holders.values())
        self._orders += [SetTimer(), Assign(sorted(holders))]
        if self._endorsement is not None:
            self._endorsement.begin()

    def _contribute(self, event: Arrived | Reported) -> None:
        if self._endorsement is not None:
            if event.learner in self._endorsement.convicted:
                return  # it was queued before
            self._endorsement.heard(event.learner)
        if isinstance(event, Arrived):
            if not self._offer(event):
                return
        else:
            for unit, digest in event.digests.items():
                self.round.report(unit, digest, learner=event.learner)
        if self._rows_lost:
            self._reassign_missing()
        self._hedge()
        self._decide()

    def _offer(self, event: Arrived) -> bool:
        """Offer a vector to the round; False if the decision cannot change."""
        try:
            return self.round.offer(
                learner=event.learner,
                row=event.row,
                coded=event.coded,
                batch_digest=event.batch_digest,
                items=event.items,
            )
        except InvalidContribution as error:
            holder = self.holder_of(event.row, event.learner)
            if holder is not None:
                self._orders.append(Expel(holder, error))
            if isinstance(error, NotFinite) and not self._examined:
                self._examined = True  # once in a round, whatever learners send
                units = np.flatnonzero(self.round.contributions.coefficients(event.row))
                self._orders.append(Examine(event.row, units.tolist()))
            return False

    def _take_computed(self, event: RecomputedStatements) -> None:
        """Take the controller's own computation."""
        assert self._endorsement is not None  # it has asked
        self._endorsement.take(event.claims, event.values)
        if event.values or isinstance(self._last, Corrupt):
            self._decide()

    def _decide(self) -> None:
        """Have the received rows decoded if they decide; liars are out of the round from then on.

        A liar is quarantined before the next event, which finds its rows vacant.
        """
        if self._endorsement is not None and (liars := self._endorsement.convict()):
            self._last = Waiting()
            self._orders += [Quarantine(learner, reason) for learner, reason in liars.items()]
            return
        self._orders.append(Decode() if self.round.decodable else Precompute())

    def _judge(self, decision: Decision) -> None:
        """Commit a decision, or see to what it lacks."""
        self._last = decision
        if self._is_withheld(decision):
            return
        if isinstance(decision, Decoded) and decision.verdict is Verdict.COMMIT:
            self._commit(decision)
        elif isinstance(decision, Waiting) or self.more_can_come:
            return
        elif isinstance(decision, Corrupt):
            self._doubt(decision)
        elif decision.verdict is Verdict.HIGH_VARIANCE:
            self._orders.append(Commit(decision))
        elif not self._replaces_vacant():
            self._accept_inexact(decision)

    def _is_withheld(self, decision: Decision) -> bool:
        """True if a decision waits for further learners or for the controller."""
        endorsement = self._endorsement
        if endorsement is None or isinstance(decision, Waiting):
            return False
        if endorsement.settles(decision):
            return True
        if isinstance(decision, Corrupt):
            return not self.more_can_come and endorsement.proves()
        return decision.verdict is Verdict.COMMIT and endorsement.withholds(decision)

    def _commit(self, decision: Decoded) -> None:
        """Commit; the learner whose contribution was left out is quarantined."""
        self._orders.append(Commit(decision))
        if decision.culprit is not None:
            self._orders.append(Quarantine(decision.culprit, decision.reason))

    def _replaces_vacant(self) -> bool:
        """True if units take the place of rows that an inexact round lacks with their learners."""
        units, absent = self._extra.unsent, self.assignment.rows - self.round.rows
        if self._policies.inexact == "commit" or not (units and absent):
            return False
        self._add({ANY: units})  # without an idle learner, until one comes or by the deadline
        return True

    def _accept_inexact(self, decision: Decoded) -> None:
        """Commit an inexact decision if the policy allows it.

        Raises:
            NotDecodable: It does not.
        """
        if self._policies.inexact != "commit":
            raise NotDecodable(
                f"iteration {self.round.iteration}: {self._lacking()}; choose a better conditioned "
                "code (cyclic, mds), or set controller.inexact=commit"
            )
        self._commit(decision)

    def _lacking(self) -> str:
        """What the received rows lack."""
        round_, last = self.round, self._last
        if isinstance(last, Decoded):
            return f"kappa = {round_.condition:.1e} leaves an error of {last.error_bound:.1e}"
        target = described(self.assignment.code.target)
        return f"rows of rank {round_.rank} do not determine {target}"

    def _pass_deadline(self, paused_s: Mapping[LearnerId, float]) -> None:
        """Prove, or commit or apply the policy, after the deadline passed without a commit."""
        if not self._proves():
            self._apply_deadline_policy(paused_s)
        self._orders.append(SetTimer())

    def _proves(self) -> bool:
        """True if the controller computes what learners have not borne out by the deadline."""
        endorsement, last = self._endorsement, self._last
        if endorsement is None:
            return False
        if isinstance(last, Decoded) and last.verdict is Verdict.COMMIT:
            endorsement.withholds(last, overdue=True)
        elif isinstance(last, Corrupt):
            endorsement.proves()
        return endorsement.computing

    def _apply_deadline_policy(self, paused_s: Mapping[LearnerId, float]) -> None:
        """Commit, fail, recode or wait.

        Raises:
            NotDecodable: By policy ``fail``, or where no unit could make the rows exact.
            Corrupted: The rows contradict each other and no more of them can be had.
        """
        last, policies = self._last, self._policies
        if isinstance(last, Corrupt):
            self._doubt(last)
            return
        if isinstance(last, Decoded) and last.verdict is not Verdict.INEXACT:
            self._commit(last)  # rows would only lower its variance, or its proof is not to be had
            return
        units, fails = self.round.missing(), policies.undecodable == "fail"
        if isinstance(last, Decoded):
            units = self._extra.unsent  # fewer would raise no rank, and may leave an error
            if fails or not units or policies.inexact == "commit":
                self._accept_inexact(last)
                return
        awaited = sorted(self.assigned - set(self.round.received))
        reason = (
            f"iteration {self.round.iteration}: {self._lacking()} after {policies.deadline_s:.1f} "
            f"s; learners {awaited} have not answered"
        )
        if fails:
            raise NotDecodable(f"{reason}; raise controller.deadline_s or code.tolerance")
        self._orders.append(Stall(reason))
        silent_s = SILENT * policies.deadline_s
        for holder in dict.fromkeys(self.assignment.holders.values()):
            if paused_s.get(holder.learner, 0.0) > silent_s:
                stuck = DeadlinePassed(f"no more of its vector came for {silent_s:.1f} s")
                self._orders.append(Expel(holder, stuck))
        if policies.undecodable == "recode" and self._add({ANY: units}):
            self._orders.append(Resume(reason))

    def _reassign_missing(self) -> None:
        """Have the units that departed learners took along computed by others."""
        self.assignment.drop_lost(self._members)
        units = self.round.missing(self.assignment.holders)
        self._rows_lost = bool(units) and not self._add({ANY: units})
        if self._rows_lost and not self.more_can_come:
            reason = f"units {units} left with their learners, and no learner can compute them"
            self._orders.append(Stall(reason))
        else:
            self._orders.append(Resume())

    def _doubt(self, corrupt: Corrupt) -> None:
        """Once, by policy, add rows until the others suffice without any single learner.

        Leaving out the one that was wrong then gives a consistent result; a unit on which learners
        disagree is computed by a further one.

        Raises:
            Corrupted: That is not allowed, was done before, or no learner is idle. The error names
                the learners of which one is wrong.
        """
        round_ = self.round
        if self._policies.undecodable == "recode" and not self._added_for_doubt:
            self._added_for_doubt = True
            wanted: dict[frozenset[LearnerId], list[UnitIndex]] = {}
            for learner in round_.received:
                wanted[frozenset({learner})] = round_.missing(without=learner)
            for unit, reporters in disputed_units(round_.reports).items():
                wanted.setdefault(reporters, []).append(unit)
            if self._add(wanted):
                return
        parties = disputants(round_.contributions)
        self._orders.append(Suspect(parties, corrupt.reason))
        raise Corrupted(
            f"iteration {round_.iteration}: {corrupt.reason}, and no proof shows who is wrong: one "
            f"or more of {self._members.named(parties, at=round_.iteration)}; look for failing "
            "memory or mixed builds there, raise code.tolerance, then resume"
        )

    def _add(self, units: Mapping[frozenset[LearnerId], Sequence[UnitIndex]]) -> bool:
        """Give each unit, as an extra row, to an idle learner; False if there is none.

        Args:
            units: Units by the learners that must not compute them.
        """
        added = self._extra.add(units)
        if added:
            self.attempt += 1
            self._order_rows(added)
        return bool(added)

    def _hedge(self) -> None:
        """In a late round, let idle learners compute units that have not arrived."""
        if self._is_late and not self.round.decodable and (added := self._extra.hedge()):
            self._order_rows(added, hedged=True)

    def _order_rows(
        self, added: Mapping[HolderT, Mapping[int, UnitIndex]], *, hedged: bool = False
    ) -> None:
        self.assigned.update(member.learner for member in added)
        self._orders.append(AddRows(added, hedged=hedged))
