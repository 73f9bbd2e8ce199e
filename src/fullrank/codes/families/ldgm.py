"""Low-density generator matrix: every unit once, then rows that add up random units."""

from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code, CodeFamily, register, require_enough_rows
from fullrank.common.errors import CodeError
from fullrank.common.seeding import stream


@register("ldgm")
@dataclass(frozen=True, slots=True, kw_only=True)
class LDGM(CodeFamily):
    """C = [I_M | P]^T with the entries of P Bernoulli(rho) [DARL1N, section V].

    Expected computation overhead (R - M) rho. A parity row may be empty, as in the paper. The
    tolerance depends on the draw and is measured. All coefficients are 0 or 1, so encoding is
    exact.

    Properties:
        Tolerance: measured; it depends on the draw.
        Load: 1 in the first M rows, rho M in the others on average.
        Exists: R >= M.

    Args:
        density: rho; at most 1/2 for a low density; 0.3 in the paper's experiments.

    >>> LDGM(density=1.0).build(rows=3, units=2, seed=0).matrix
    array([[1., 0.],
           [0., 1.],
           [1., 1.]])
    """

    density: float = 0.3

    def __post_init__(self) -> None:
        if not 0.0 <= self.density <= 1.0:
            raise CodeError(f"ldgm needs 0 <= density <= 1: {self.density}")

    def rows_for(self, units: int) -> int:
        """M + 1, one parity row; whether it survives a loss depends on the draw."""
        return units + 1

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Identity on top of one draw of P^T."""
        require_enough_rows("ldgm", rows=rows, units=units)
        draws = stream(seed, "ldgm_parity").random((rows - units, units))
        parity = (draws < self.density).astype(np.float64)
        return Code(name="ldgm", matrix=np.vstack([np.eye(units), parity]))
