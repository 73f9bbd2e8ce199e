"""Whole copies of units, assigned round robin."""

from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code, CodeFamily, Tolerance, register, require_enough_rows


@register("replication")
@dataclass(frozen=True, slots=True, kw_only=True)
class Replication(CodeFamily):
    """c_ji = 1 iff i = j mod M (0-based) [Wang21, section III-C; DARL1N, eq. 10].

    Unit i has floor(R / M) copies, one more for i < R mod M. Only the loss of all
    copies loses a unit.

    Differs from the papers in: 0-based indices, so that remainder 0 is no special case
    ([DARL1N] eq. 10 forgets it).

    Properties:
        Tolerance: floor(R / M) - 1.
        Load: 1 in every row.
        Exists: R >= M.

    >>> code = Replication().build(rows=15, units=8, seed=0)
    >>> code.tolerance, code.load.max()
    (0, np.int64(1))
    """

    def rows_for(self, units: int) -> int:
        """2 M, two copies of each unit."""
        return 2 * units

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Round robin; ``seed`` is not used."""
        require_enough_rows("replication", rows=rows, units=units)
        return Code(
            name="replication",
            matrix=np.eye(units)[np.arange(rows) % units],
            known_tolerance=Tolerance(rows // units - 1, "closed form"),
        )
