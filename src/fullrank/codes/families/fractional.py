"""Fractional repetition: groups of rows that each return the sum over their share of the units."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.codes.base import Code, CodeFamily, Tolerance, register
from fullrank.codes.conditions import decodable
from fullrank.codes.targets import sum_of_units
from fullrank.common.errors import CodeError
from fullrank.common.types import Matrix


@register("fractional")
@dataclass(frozen=True, slots=True, kw_only=True)
class Fractional(CodeFamily):
    """Gradient coding by whole groups [Tandon17, section 4.1]; decodes the sum only.

    The rows form floor(R / (s + 1)) groups of at least s + 1; the units are split among the groups
    as evenly as possible, and every row of a group is all ones over the group's share. One vector
    per group suffices. A group of s + 1 rows may lose s of them.

    Differs from the source in: s + 1 need not divide R (some groups are larger), nor the number of
    groups M.

    Properties:
        Tolerance: s, or more where the smallest group has more than s + 1 rows.
        Load: ceil(M / floor(R / (s + 1))) at most.
        Exists: 0 <= s < R.

    Args:
        tolerance: s, lost learners that never matter; 0 <= s < N.

    >>> code = Fractional().build(rows=5, units=3, seed=0)
    >>> code.matrix, code.target
    (array([[1., 1., 0.],
           [1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.],
           [0., 0., 1.]]), array([[1., 1., 1.]]))
    """

    tolerance: int = 1

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise CodeError(f"fractional needs tolerance >= 0: {self.tolerance}")

    def rows_for(self, units: int) -> int:
        """M (s + 1): a group for each unit, so that every unit decodes and not only sums."""
        return units * (self.tolerance + 1)

    def rows_to_recover(self, target: Matrix) -> int:
        """M rows or fewer, as in the source, where their groups recover the target; else more."""
        units = target.shape[1]
        for groups in range(max(1, units // (self.tolerance + 1)), units):
            rows = groups * (self.tolerance + 1)
            matrix = self.build(rows=rows, units=units, seed=0).matrix
            if decodable(matrix, np.arange(rows)[None], target=target)[0]:
                return rows
        return self.rows_for(units)

    @classmethod
    def tolerating(cls, losses: int) -> dict[str, Any]:
        """Return the field ``tolerance``."""
        return {"tolerance": losses}

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Groups of consecutive rows; ``seed`` is not used."""
        if self.tolerance >= rows:
            raise CodeError(
                f"fractional needs tolerance < rows: {self.tolerance} >= {rows}; add rows or lower "
                "the tolerance"
            )
        groups = min(rows // (self.tolerance + 1), units)
        group_of_row = np.sort(np.arange(rows) % groups)
        group_of_unit = np.sort(np.arange(units) % groups)
        smallest = int(np.bincount(group_of_row).min())
        return Code(
            name="fractional",
            matrix=(group_of_row[:, None] == group_of_unit).astype(np.float64),
            known_tolerance=Tolerance(smallest - 1, "closed form"),
            target=sum_of_units(units),
        )
