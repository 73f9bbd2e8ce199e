"""Settings of the planner's choice of code, which follows the times that a run measures."""

from dataclasses import dataclass, replace

from fullrank.codes.base import Code, CodeFamily, register, require_enough_rows
from fullrank.codes.families.cyclic import Cyclic
from fullrank.common.errors import CodeError

START = 1
"""The tolerance of the first iterations: waiting for late learners shows how late they are."""


@register("auto")
@dataclass(frozen=True, slots=True, kw_only=True)
class Auto(CodeFamily):
    """A controller policy rather than a code: start as ``cyclic``, then follow the planner.

    The first iterations use ``cyclic`` with tolerance 1; without a controller this never changes.

    Properties:
        Tolerance: 1 at the start; then the planner chooses.
        Load: that of the chosen code.
        Exists: R >= M + 1.

    Args:
        margin: Least share of the expected round time that a change of code must save; more while
            changes are recent.

    >>> code = Auto().build(rows=15, units=8, seed=0)
    >>> code.name, code.tolerance
    ('auto', 1)
    """

    margin: float = 0.05

    def __post_init__(self) -> None:
        if not 0.0 <= self.margin < 1.0:
            raise CodeError(f"auto needs 0 <= margin < 1: {self.margin}")

    def rows_for(self, units: int) -> int:
        """M + 1, which the code of the first iterations needs."""
        return units + START

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """The code of the first iterations.

        Raises:
            CodeError: R <= M: no code survives a loss.
        """
        require_enough_rows("auto", rows=rows, units=units, tolerance=START)
        return replace(
            Cyclic(tolerance=START).build(rows=rows, units=units, seed=seed), name="auto"
        )
