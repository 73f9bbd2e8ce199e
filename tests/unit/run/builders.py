"""Open rounds of learners that are mere names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fullrank.codes import Code, codes, support
from fullrank.codes.learner_codes import code_for_learners
from fullrank.common.linear_hash import LinearHash
from fullrank.common.types import FloatArray, LearnerId
from fullrank.common.updates import snap
from fullrank.config import PluginSettings
from fullrank.rounds.decision import Decoded
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.quorum import Quorum
from fullrank.rounds.reports import report_of
from fullrank.rounds.round import Round
from fullrank.run.assignment import RowAssignment
from fullrank.run.placement import Domain, Placement
from fullrank.run.policies import DEFAULT_POLICIES, RoundPolicies
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import (
    Arrived,
    Begun,
    Commit,
    Decided,
    Decode,
    Fail,
    MembershipChanged,
    Quarantine,
    Reported,
    RoundEvent,
    RoundOrder,
)

SIZE = 4
UPDATES = [snap(np.full(SIZE, value, np.float32)) for value in (0.3, -0.4, 0.1)]


@dataclass(eq=False, slots=True)
class Learner:
    """A learner that may hold rows."""

    learner: LearnerId
    domain: Domain = ()
    quarantined: str = ""


@dataclass(slots=True)
class Team:
    """The learners of a run."""

    members: list[Learner] = field(default_factory=list)

    @property
    def eligible(self) -> list[Learner]:
        """Those that are trusted."""
        return [member for member in self.members if not member.quarantined]

    def member(self, learner: LearnerId) -> Learner | None:
        """The learner with an index."""
        return next((each for each in self.members if each.learner == learner), None)

    def named(self, learners: Iterable[LearnerId], *, at: int) -> str:
        """Names of learners."""
        return "; ".join(f"learner {learner}" for learner in learners)


def team_of(count: int) -> Team:
    """Learners on hosts of their own."""
    return Team([Learner(index, (f"host-{index}",)) for index in range(count)])


def opened(
    team: Team,
    code: Code,
    *,
    policies: RoundPolicies = DEFAULT_POLICIES,
    quorum: Quorum | None = None,
) -> OpenRound[Learner]:
    """A round in which learner j holds the j-th rows, as far as there are learners."""
    width = code.rows_per_learner
    rows = range(min(code.rows, width * len(team.members)))
    assignment = RowAssignment(
        epoch=1,
        requested=PluginSettings(name=code.name, params={}),
        code=code,
        holders={row: team.members[row // width] for row in rows},
        members=len(team.members),
        placement=Placement(holders=tuple(rows), shared=0, changed=0),
    )
    round_ = Round(5, code, decoding=ExactDecoding(), target_sizes=[SIZE] * len(code.target))
    return OpenRound(
        round_,
        assignment,
        members=team,
        policies=policies,
        quorum=quorum,
        recomputes=lambda: True,
    )


def uncoded(units: int = 3) -> Code:
    """One row for each unit."""
    return code_for_learners(codes.build("uncoded"), learners=units, units=units, seed=0)


class Host:
    """Executes orders that need no network, and keeps all of them.

    Attributes:
        orders: Everything that was ordered.
    """

    def __init__(self, round_: OpenRound[Learner], team: Team) -> None:
        self.orders: list[RoundOrder] = []
        self._round, self._team = round_, team
        self.tell(Begun())

    def tell(self, event: RoundEvent) -> None:
        """Let the round take an event, unless it is over."""
        if any(isinstance(order, (Commit, Fail)) for order in self.orders):
            return
        for order in self._round.step(event):
            self.orders.append(order)
            if isinstance(order, Decode):
                self.tell(Decided(self._round.round.decide()))
            elif isinstance(order, Quarantine):
                member = self._team.member(order.learner)
                assert member is not None
                member.quarantined = order.reason
                self.tell(MembershipChanged())

    def sends(self, row: int, updates: Sequence[FloatArray] = UPDATES) -> None:
        """Let the holder of a row report its units and send its vector."""
        coefficients = self._round.round.contributions.coefficients(row)
        learner = self._round.assignment.holders[row].learner
        sums = not self._round.assignment.code.recovers_units
        hashing = LinearHash(SIZE, key=0) if sums else None
        reports = {unit: report_of(updates[unit], hashing) for unit in support(coefficients)}
        self.tell(Reported(learner=learner, digests=reports))
        coded = coefficients @ np.stack(updates).astype(np.float64)
        self.tell(Arrived(learner=learner, row=row, coded=coded))

    @property
    def decision(self) -> Decoded:
        """The decision of a round that is over."""
        [commit] = [order for order in self.orders if isinstance(order, Commit)]
        return commit.decision

    @property
    def failure(self) -> Exception:
        """The error by which the round has failed."""
        [fail] = [order for order in self.orders if isinstance(order, Fail)]
        return fail.error
