"""The assignment of an epoch: its code C, the holders of its rows, and extra rows of a round.

The code has a *share* for each learner: a row, or several consecutive ones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from fullrank.codes import Code, codes, support
from fullrank.codes.base import CodeFamily
from fullrank.codes.conditions import decodable, loss_patterns, rows_held
from fullrank.codes.decoding.rows import completing_units
from fullrank.codes.learner_codes import code_for_learners
from fullrank.common.errors import CodeError
from fullrank.common.types import BoolArray, LearnerId, Matrix, UnitIndex
from fullrank.rounds.round import Round
from fullrank.run.placement import Domain, Placement, place

RECHECKED = 500
"""Most loss patterns on which a new epoch's code is verified, which takes a few milliseconds."""


class Holder(Protocol):
    """A learner that may hold rows; equal only to itself."""

    @property
    def learner(self) -> LearnerId:
        """Its index, which a later learner may have, too."""

    @property
    def domain(self) -> Domain:
        """Its failure domains."""

    @property
    def quarantined(self) -> str:
        """Why it may hold no row; empty if it is trusted."""


HolderT = TypeVar("HolderT", bound=Holder)


MemberT = TypeVar("MemberT", bound=Holder, covariant=True)


class Members(Protocol[MemberT]):
    """The learners of a run."""

    @property
    def eligible(self) -> Sequence[MemberT]:
        """Learners that may hold rows."""

    def member(self, learner: LearnerId) -> MemberT | None:
        """The attached learner with an index; None if there is none."""

    def named(self, learners: Iterable[LearnerId], *, at: int) -> str:
        """Name the learners that had some indices in an iteration, with what is known of them."""


class CodeRequest(Protocol):
    """The code that a run asks for."""

    @property
    def name(self) -> str:
        """Name of its family."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the family."""


@dataclass(slots=True, kw_only=True)
class RowAssignment(Generic[HolderT]):
    """The code of one epoch and the holders of its rows.

    While a round is open it may have extra rows, each a single unit, numbered from R on.
    """

    epoch: int
    requested: CodeRequest
    """The requested code; with fewer learners ``code`` tolerates fewer losses."""
    code: Code
    holders: dict[int, HolderT]
    """Holder of each row, extra rows included; rows of departed learners are absent."""
    members: int
    """Learners among which the shares were placed; those without a row are spares."""
    placement: Placement
    """Quality of the current placement."""
    extra_rows: dict[int, UnitIndex] = field(default_factory=dict)
    """Unit of each extra row of the open round."""

    @property
    def spares(self) -> int:
        """Number of learners that got no row."""
        return max(0, self.members - len(working_shares(self.code)))

    @property
    def rows(self) -> set[int]:
        """Rows of C that combine a unit, and extra rows; with a holder or without."""
        return {*working_rows(self.code), *self.extra_rows}

    def vacant(self) -> list[int]:
        """Shares without a holder."""
        held = {row // self.code.rows_per_learner for row in self.holders}
        return [share for share in working_shares(self.code) if share not in held]

    def remaining_tolerance(self) -> int:
        """Learners that may still be lost; negative when the guarantee no longer holds."""
        return self.code.tolerance - len(self.vacant())

    def drop_absent(self, members: Sequence[HolderT]) -> None:
        """Vacate the rows of learners that left."""
        self.holders = {row: held for row, held in self.holders.items() if held in members}

    def drop_lost(self, members: Members[HolderT]) -> None:
        """Vacate, within a round, the rows of learners that left or are quarantined.

        A learner that is to hold no row from the next round on still finishes its own.
        """
        self.drop_absent(
            [
                holder
                for holder in dict.fromkeys(self.holders.values())
                if members.member(holder.learner) is holder and not holder.quarantined
            ]
        )

    def fill(self, members: Sequence[HolderT]) -> bool:
        """Give vacant shares to spares between rounds.

        Returns:
            False if another code would employ more learners: one has no row though it could have
            one, as a newcomer does, or the spares are too few for the vacant shares.
        """
        idle, vacant = len(members) - len(set(self.holders.values())), len(self.vacant())
        if vacant and idle >= vacant:
            self.holders, self.placement = _placed(self.code, members, self.held(members))
            idle -= vacant
        return idle <= self.spares and not (idle and self.vacant())

    @property
    def decodable(self) -> bool:
        """True if the held rows determine the target."""
        rows = self.code.matrix[sorted(self.holders)]
        return not completing_units(rows, target=self.code.target)

    def held(self, members: Sequence[HolderT]) -> BoolArray:
        """Units that each of the members computes in rows of C, shape (members, M)."""
        units = np.zeros((len(members), self.code.units), np.bool_)
        for row, holder in self.holders.items():
            if row < self.code.rows and holder in members:
                units[members.index(holder)] |= self.code.matrix[row] != 0
        return units

    def rows_of(self, member: HolderT) -> list[int]:
        """Rows that a member holds, ascending."""
        return sorted(row for row, holder in self.holders.items() if holder is member)

    def computes(self, learner: LearnerId, unit: UnitIndex) -> bool:
        """True if the unit is part of a row that the learner holds."""
        return any(
            self.extra_rows[row] == unit
            if row in self.extra_rows
            else bool(self.code.matrix[row, unit])
            for row, holder in self.holders.items()
            if holder.learner == learner
        )

    def add_extra_row(self, row: int, unit: UnitIndex, holder: HolderT) -> None:
        """Give a single unit to a member as a row beyond those of C."""
        self.extra_rows[row], self.holders[row] = unit, holder

    def drop_extra_rows(self) -> None:
        """Forget the extra rows of a round that is over."""
        self.extra_rows = {}
        self.holders = {row: held for row, held in self.holders.items() if row < self.code.rows}


def working_shares(code: Code) -> list[int]:
    """Shares with at least one unit; with more learners than rows the last shares are empty."""
    return [share for share, load in enumerate(code.load) if load]


def working_rows(code: Code, shares: Iterable[int] | None = None) -> list[int]:
    """Rows that combine at least one unit; of some shares only, if they are given."""
    width = code.rows_per_learner
    chosen = range(code.learners) if shares is None else shares
    rows = [row for share in chosen for row in range(share * width, (share + 1) * width)]
    return [row for row in rows if code.matrix[row].any()]


def code_of_learners(
    name: str,
    params: Mapping[str, Any],
    *,
    learners: int,
    units: int,
    seed: int,
    target: Matrix | None = None,
) -> Code | None:
    """The code of N learners, or None.

    A tolerance set by the parameters is kept while more learners are there, and lowered otherwise.
    """
    for wanted in _lowered(codes.get(name), params, range(learners - 1, -1, -1)):
        try:
            return code_for_learners(
                codes.build(name, **wanted),
                learners=learners,
                units=units,
                seed=seed,
                target=target,
            )
        except CodeError:
            continue
    return None


def _lowered(
    family: type[CodeFamily], params: Mapping[str, Any], losses: Iterable[int]
) -> list[dict[str, Any]]:
    """The distinct parameters with a tolerance of at most each number of losses."""
    lowered: list[dict[str, Any]] = []
    for most in (family.tolerating(loss) or {} for loss in losses):
        wanted = {key: min(value, most.get(key, value)) for key, value in params.items()}
        if wanted not in lowered:
            lowered.append(wanted)
    return lowered


def make_assignment(
    epoch: int,
    members: Sequence[HolderT],
    *,
    requested: CodeRequest,
    units: int,
    seed: int,
    target: Matrix | None = None,
    previous: RowAssignment[HolderT] | None = None,
) -> RowAssignment[HolderT] | None:
    """Assign the rows of the members' code; None if there is no such code.

    Args:
        epoch: Number of the epoch.
        members: Learners that may hold rows.
        requested: The requested code.
        units: M.
        seed: Seed of the code.
        target: T that the code has to recover; by default every unit.
        previous: The assignment before; learners keep their units as far as possible.
    """
    code = code_of_learners(
        requested.name,
        requested.params,
        learners=len(members),
        units=units,
        seed=seed,
        target=target,
    )
    if code is None:
        return None
    _verify_tolerance(code)
    held = previous.held(members) if previous else np.zeros((len(members), units), np.bool_)
    holders, placement = _placed(code, members, held)
    return RowAssignment(
        epoch=epoch,
        requested=requested,
        code=code,
        holders=holders,
        members=len(members),
        placement=placement,
    )


def _placed(
    code: Code, members: Sequence[HolderT], held: BoolArray
) -> tuple[dict[int, HolderT], Placement]:
    """Holders of the rows by row, and the placement behind them."""
    shares = working_shares(code)
    combined = np.asarray(code.blocks[shares].any(axis=1))
    placement = place(combined, [member.domain for member in members], held)
    return {
        row: members[index]
        for share, index in zip(shares, placement.holders, strict=True)
        for row in working_rows(code, [share])
    }, placement


def _verify_tolerance(code: Code) -> None:
    """Verify the stated tolerance on a sample of loss patterns before a run relies on it.

    Raises:
        CodeError: Fewer losses than stated make the code undecodable.
    """
    kept = loss_patterns(code.learners, code.tolerance, limit=RECHECKED)
    patterns = rows_held(kept, code.rows_per_learner)
    if not decodable(code.matrix, patterns, target=code.target).all():
        raise CodeError(
            f"{code.name} with {code.learners} learners and {code.units} units does not tolerate "
            f"the {code.tolerance} losses it states ({code.certificate}); choose another code"
        )


ANY: frozenset[LearnerId] = frozenset()
"""Excludes no learner from computing a unit."""


class ExtraRows(Generic[HolderT]):
    """Gives units to learners whose own rows have arrived.

    Args:
        round_: Received rows.
        assignment: The holders of all rows; extra rows are added to it.
        members: The learners of the run.

    Attributes:
        hedged: Number of units that were given while their holders were late.
    """

    def __init__(
        self, round_: Round, assignment: RowAssignment[HolderT], members: Members[HolderT]
    ) -> None:
        self._round, self._assignment, self._members = round_, assignment, members
        self.hedged = 0

    @property
    def unsent(self) -> list[UnitIndex]:
        """Units that no extra row has brought yet."""
        extra = self._assignment.extra_rows
        sent = {extra.get(row) for row in self._round.rows}
        return [unit for unit in range(self._assignment.code.units) if unit not in sent]

    def add(
        self, units: Mapping[frozenset[LearnerId], Sequence[UnitIndex]]
    ) -> dict[HolderT, dict[int, UnitIndex]]:
        """Give each unit to the next idle learner.

        Args:
            units: Units by the learners that must not compute them.

        Returns:
            Unit of each added row, by holder; empty if no learner is idle.
        """
        idle, added = self._idle(), dict[HolderT, dict[int, UnitIndex]]()
        for excluded, unit in ((those, unit) for those, wanted in units.items() for unit in wanted):
            member = next((member for member in idle if member.learner not in excluded), None)
            if member is not None:
                idle.append(idle.pop(idle.index(member)))  # the next unit goes to the next learner
                added.setdefault(member, {})[self._give(unit, member)] = unit
        return added

    def hedge(self) -> dict[HolderT, dict[int, UnitIndex]]:
        """Give each idle learner the missing unit that the fewest learners are computing.

        Of equally rare ones it takes the next after its own number, so that learners that choose
        alike begin apart; and none that it was given before.

        Returns:
            Unit of each added row, by holder.
        """
        added = dict[HolderT, dict[int, UnitIndex]]()
        if not (idle := self._idle()):
            return added
        missing, held = self._round.missing(), self._computing()
        extra, units = self._assignment.extra_rows, self._assignment.code.units
        for member in idle:
            first = member.learner
            given = {extra.get(row) for row in self._assignment.rows_of(member)}
            unit = min(
                (unit for unit in missing if unit not in given),
                key=lambda unit: (held[unit], (unit - first) % units),
                default=None,
            )
            if unit is not None:
                held[unit] += 1
                added[member] = {self._give(unit, member): unit}
        self.hedged += len(added)
        return added

    def _idle(self) -> list[HolderT]:
        """Learners that hold no row which has not arrived."""
        rows, rows_of = self._round.rows, self._assignment.rows_of
        return [each for each in self._members.eligible if rows.issuperset(rows_of(each))]

    def _computing(self) -> Counter[UnitIndex]:
        """Number of learners that compute each unit, as part of a row that has not arrived."""
        held = Counter[UnitIndex]()
        for row in self._assignment.holders.keys() - self._round.rows:
            held.update(support(self._round.contributions.coefficients(row)))
        return held

    def _give(self, unit: UnitIndex, member: HolderT) -> int:
        """Add a row of a unit; returns its number."""
        row = self._round.add(unit)
        self._assignment.add_extra_row(row, unit, member)
        return row
