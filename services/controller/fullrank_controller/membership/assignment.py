"""Which code for the learners that are there, and who holds which row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.codes import Code, make_code
from fullrank.codes.conditions import decodable, loss_patterns
from fullrank.codes.decoding.completion import completing_units
from fullrank.common.errors import CodeError
from fullrank.common.types import BoolArray
from fullrank.config import PluginSettings
from fullrank_controller.membership.placement import Placement, place
from fullrank_controller.membership.roster import Member

RECHECKED = 500
"""Loss patterns that a new epoch's code is tried with, at most: some milliseconds."""


@dataclass(slots=True, kw_only=True)
class Deal:
    """One epoch: C and the holders of its rows."""

    epoch: int
    asked: PluginSettings
    """The code that was asked for; with fewer learners the one that was made tolerates less."""
    code: Code
    holders: dict[int, Member]
    """Row to holder; the rows of learners that left are missing, those added are there, too."""
    members: int
    """Learners that were there; those without a row are spares."""
    placement: Placement
    """How well the rows suit the learners that got them."""

    @property
    def spares(self) -> int:
        """Learners that were there and got no row."""
        return max(0, self.members - len(working_rows(self.code)))

    def vacant(self) -> list[int]:
        """Rows that nobody holds."""
        return [row for row in working_rows(self.code) if row not in self.holders]

    def remaining_tolerance(self) -> int:
        """Rows that may still be lost; negative when the guarantee is gone."""
        return self.code.tolerance - len(self.vacant())

    def drop_absent(self, members: Sequence[Member]) -> None:
        """Make vacant the rows of learners that left."""
        self.holders = {row: held for row, held in self.holders.items() if held in members}

    def fill(self, members: Sequence[Member]) -> bool:
        """Between rounds: spares take vacant rows; False if somebody has none who could have one.

        Such as a newcomer, or a spare where too few are left for all rows: C is not for them.
        """
        idle, vacant = len(members) - len(self.holders), len(self.vacant())
        if vacant and idle >= vacant:
            self.holders, self.placement = _placed(self.code, members, self.held(members))
            idle -= vacant
        return idle <= self.spares and not (idle and self.vacant())

    @property
    def decodable(self) -> bool:
        """Whether the rows that are held determine every unit."""
        return not completing_units(self.code.matrix[sorted(self.holders)])

    def held(self, members: Sequence[Member]) -> BoolArray:
        """Units that each of the members computes, shape (members, M)."""
        units = np.zeros((len(members), self.code.units), np.bool_)
        for row, holder in self.holders.items():
            if holder in members:
                units[members.index(holder)] |= self.code.matrix[row] != 0
        return units

    def rows_of(self, member: Member) -> list[int]:
        """Rows that a member holds, ascending."""
        return sorted(row for row, holder in self.holders.items() if holder is member)

    def forget_added(self) -> None:
        """Of an iteration that is over, the rows that C does not have."""
        self.holders = {row: held for row, held in self.holders.items() if row < self.code.rows}


def working_rows(code: Code) -> list[int]:
    """Rows that combine at least one unit; ``uncoded`` has others when R > M."""
    return [row for row, load in enumerate(code.load) if load]


def largest_code(
    name: str, params: dict[str, Any], *, learners: int, units: int, seed: int
) -> Code | None:
    """The code with the most rows R <= learners that exists, or None.

    When learners have left, a ``cyclic`` code keeps as much tolerance as R - M allows.
    """
    for rows in range(learners, units - 1, -1):
        wanted = dict(params)
        if "tolerance" in wanted:
            wanted["tolerance"] = min(int(wanted["tolerance"]), rows - units)
        try:
            return make_code(name, rows=rows, units=units, seed=seed, **wanted)
        except CodeError:
            continue
    return None


def deal(
    epoch: int,
    members: Sequence[Member],
    *,
    asked: PluginSettings,
    units: int,
    seed: int,
    before: Deal | None = None,
) -> Deal | None:
    """Deal the rows of the largest code; those who get none are spares.

    Args:
        epoch: Its number.
        members: Who is there.
        asked: The code that is wanted.
        units: M.
        seed: Of the code.
        before: The deal that this one follows; learners keep what they held as far as possible.
    """
    params = dict(asked.params)
    code = largest_code(asked.name, params, learners=len(members), units=units, seed=seed)
    if code is None:
        return None
    _recheck(code)
    held = before.held(members) if before else np.zeros((len(members), units), np.bool_)
    holders, placement = _placed(code, members, held)
    return Deal(
        epoch=epoch,
        asked=asked,
        code=code,
        holders=holders,
        members=len(members),
        placement=placement,
    )


def _placed(
    code: Code, members: Sequence[Member], held: BoolArray
) -> tuple[dict[int, Member], Placement]:
    """Holders of the rows, by row."""
    rows = working_rows(code)
    found = place(code.matrix[rows] != 0, [member.domain for member in members], held)
    return {row: members[each] for row, each in zip(rows, found.holders, strict=True)}, found


def _recheck(code: Code) -> None:
    """What a construction promises is looked at once more before a run rests on it.

    Raises:
        CodeError: Fewer losses than it states make the code undecodable.
    """
    patterns = loss_patterns(code.rows, code.tolerance, limit=RECHECKED)
    if not decodable(code.matrix, patterns, target=code.target).all():
        raise CodeError(
            f"{code.name} with {code.rows} rows and {code.units} units does not bear the "
            f"{code.tolerance} losses it states ({code.certificate}); choose another code"
        )
