"""Extra rows of a round: single units that idle learners compute beyond their rows of C."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic

from fullrank.codes import support
from fullrank.common.types import LearnerId, UnitIndex
from fullrank.rounds.round import Round
from fullrank.run.assignment import HolderT, RowAssignment
from fullrank.run.endorsement import Members

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
