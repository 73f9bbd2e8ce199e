"""Settings of the planner's choice of code, which follows the times that a run measures."""

from dataclasses import dataclass

from fullrank.codes.base import Code, CodeFamily, codes, make_code, require_enough_rows
from fullrank.codes.targets import is_each_unit
from fullrank.common.errors import CodeError
from fullrank.common.registry import Registry
from fullrank.common.types import Matrix
from fullrank.config.tree import PluginSettings

START = 1
"""The tolerance of the first iterations: waiting for late learners shows how late they are."""
FIRST = PluginSettings(name="cyclic", params={"tolerance": START})
"""The code until there is a plan."""
FIRST_OF_SUMS = PluginSettings(name="fractional", params={"tolerance": START})
"""The code until there is a plan where learners are too few for ``FIRST``, but enough for sums."""

code_choices: Registry[CodeFamily] = Registry("code", base=codes)
"""Values of ``code.name``: the registered codes, and ``auto``."""


def first_code(target: Matrix, *, rows: int) -> PluginSettings:
    """Choose the code of the first iterations for T, shape (K, M), and R = ``rows``."""
    few = rows < target.shape[1] + START
    return FIRST_OF_SUMS if few and not is_each_unit(target) else FIRST


@code_choices.register("auto")
@dataclass(frozen=True, slots=True, kw_only=True)
class AutoCodeSettings(CodeFamily):
    """Settings of the planner's choice of code, which follows the times that a run measures.

    This is a controller policy rather than a code: ``first_code`` at the start, then the planner's
    choice, which survives a loss unless ``controller.undecodable`` adds rows for lost learners
    (``recode``, ``hedge``). Without a controller the first code never changes.

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

    def recovering(self, target: Matrix, *, rows: int, seed: int) -> Code:
        """Build the code of the first iterations for T, shape (K, M).

        Raises:
            CodeError: No code survives a loss.
        """
        first, units = first_code(target, rows=rows), target.shape[1]
        if first == FIRST:
            return self.build(rows=rows, units=units, seed=seed).recovering(target)
        return make_code(
            first.name, rows=rows, units=units, seed=seed, target=target, **first.params
        )
