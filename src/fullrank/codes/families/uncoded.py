"""No redundancy: unit i on row i, spare rows empty."""

from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code, CodeFamily, Tolerance, register, require_enough_rows


@register("uncoded")
@dataclass(frozen=True, slots=True, kw_only=True)
class Uncoded(CodeFamily):
    """C = [I_M; 0]: the baseline of [Wang21, section V].

    Row j < M computes unit j alone; rows M..R-1 compute nothing.

    Properties:
        Tolerance: 0: losing any of the first M rows loses its unit.
        Load: 1 in rows 0..M-1, 0 in the others.
        Exists: R >= M.

    >>> Uncoded().build(rows=3, units=2, seed=0).matrix
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    """

    def rows_for(self, units: int) -> int:
        """The number of rows: M."""
        return units

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Identity on top; ``seed`` is not used."""
        require_enough_rows("uncoded", rows=rows, units=units)
        return Code(
            name="uncoded",
            matrix=np.eye(rows, units),
            known_tolerance=Tolerance(0, "closed form"),
        )
