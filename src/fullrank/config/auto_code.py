"""Settings of the planner's choice of code, which follows the times that a run measures."""

from dataclasses import dataclass

from fullrank.codes.base import Code, CodeFamily, codes, make_code, require_enough_rows
from fullrank.common.errors import CodeError
from fullrank.common.registry import Registry
from fullrank.config.tree import PluginSettings

START = 1
"""The tolerance of the first iterations: waiting for late learners shows how late they are."""
FIRST = PluginSettings(name="cyclic", params={"tolerance": START})
"""The code until there is a plan."""

code_choices: Registry[CodeFamily] = Registry("code", base=codes)
"""Values of ``code.name``: the registered codes, and ``auto``."""


@code_choices.register("auto")
@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCodeSettings(CodeFamily):
    """Settings of the planner's choice of code, which follows the times that a run measures.

    This is a controller policy rather than a code: ``FIRST`` at the start, then what the planner
    chooses. Without a controller the first code never changes.

    Args:
        margin: Least share of the expected round time that a change of code must save; more while
            changes are recent.

    >>> AutoCodeSettings().build(rows=15, units=8, seed=0).tolerance
    1
    """

    margin: float = 0.05

    def __post_init__(self) -> None:
        if not 0.0 <= self.margin < 1.0:
            raise CodeError(f"auto needs 0 <= margin < 1: {self.margin}")

    def rows_for(self, units: int) -> int:
        """M + 1, which the code of the first iterations needs."""
        return units + START

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Build the code of the first iterations.

        Raises:
            CodeError: R <= M: no code survives a loss.
        """
        require_enough_rows("auto", rows=rows, units=units, tolerance=START)
        return make_code(FIRST.name, rows=rows, units=units, seed=seed, **FIRST.params)
