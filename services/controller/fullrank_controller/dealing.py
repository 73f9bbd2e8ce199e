"""Which code for the learners that are there, and who holds which row."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from fullrank.codes import Code, Decoder, make_code
from fullrank.config import PluginSettings
from fullrank.errors import CodeError
from fullrank_controller.roster import Member


@dataclass(slots=True, kw_only=True)
class Deal:
    """One epoch: C and the holders of its rows."""

    epoch: int
    asked: PluginSettings
    """The code that was asked for; with fewer learners the one that was made tolerates less."""
    code: Code
    holders: dict[int, Member]
    """Row to holder; the rows of learners that left are missing."""
    members: int
    """Learners that were there; those without a row are spares."""

    @property
    def spares(self) -> int:
        """Learners that were there and got no row."""
        return max(0, self.members - len(working_rows(self.code)))

    def vacant(self) -> list[int]:
        """Rows that nobody holds."""
        return [row for row in working_rows(self.code) if row not in self.holders]

    def remaining_tolerance(self) -> int:
        """Rows that may still be lost; negative when the guarantee is gone."""
        return int(self.code.tolerance) - len(self.vacant())

    def drop_absent(self, members: Sequence[Member]) -> None:
        """Make vacant the rows of learners that left."""
        self.holders = {row: held for row, held in self.holders.items() if held in members}

    def fill(self, members: Sequence[Member]) -> list[int]:
        """Give vacant rows to members that hold none; returns these rows."""
        free = [member for member in members if member not in self.holders.values()]
        filled = dict(zip(self.vacant(), free, strict=False))
        self.holders.update(filled)
        return list(filled)

    def reachable_rank(self, received: Collection[int]) -> int:
        """rank(C_J) if every holder answered, besides the rows already received."""
        decoder = Decoder(self.code)
        for row in {*received, *self.holders}:
            decoder.offer(row=row, vector=None)
        return decoder.rank


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
) -> Deal | None:
    """Deal the rows of the largest code to the first members; the rest are spares."""
    params = dict(asked.params)
    code = largest_code(asked.name, params, learners=len(members), units=units, seed=seed)
    if code is None:
        return None
    holders = dict(zip(working_rows(code), members, strict=False))
    return Deal(epoch=epoch, asked=asked, code=code, holders=holders, members=len(members))
