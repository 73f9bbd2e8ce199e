"""The papers' MDS code, for fidelity; its conditioning makes it useless beyond a few units."""

import warnings
from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code, CodeFamily, Tolerance, register, require_enough_rows
from fullrank.common.errors import CodeError
from fullrank.common.types import Vector


@register("vandermonde")
@dataclass(frozen=True, slots=True, kw_only=True)
class Vandermonde(CodeFamily):
    """c_ji = alpha_i^(R-1-j) [Wang21, section III-C, with the order of rows of the authors' code].

    Any M rows are independent if the nodes are distinct and **positive** (nodes of mixed signs
    collide in even powers), so the tolerance is R - M in exact arithmetic. In float64 the worst
    condition is 1e12 at (R, M) = (15, 8) and beyond 1e19 at (24, 12): the certificate refuses most
    decodes. Use ``mds`` or ``cyclic``.

    Differs from the paper in: nodes must be distinct and positive, not only non-zero.

    Properties:
        Tolerance: R - M in exact arithmetic.
        Load: M in every row.
        Exists: R >= M.

    Args:
        nodes: alpha_1..alpha_M; empty means M equally spaced nodes from 0.1 to 0.5, as in the
            authors' code.

    >>> with warnings.catch_warnings(action="ignore"):
    ...     Vandermonde(nodes=(1.0, 2.0)).build(rows=3, units=2, seed=0).matrix
    array([[1., 4.],
           [1., 2.],
           [1., 1.]])
    """

    nodes: tuple[float, ...] = ()

    def rows_for(self, units: int) -> int:
        """M + 1, which survive one loss."""
        return units + 1

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """Powers of the nodes; ``seed`` is not used."""
        require_enough_rows("vandermonde", rows=rows, units=units)
        matrix = np.vander(self._nodes(units), rows).T
        warnings.warn(
            f"vandermonde with {units} units is ill conditioned and decodes with large errors; "
            "prefer mds or cyclic",
            stacklevel=3,
        )
        return Code(
            name="vandermonde",
            matrix=matrix,
            known_tolerance=Tolerance(rows - units, "closed form"),
        )

    def _nodes(self, units: int) -> Vector:
        nodes = np.array(self.nodes or np.linspace(0.1, 0.5, units), dtype=np.float64)
        if len(nodes) != units:
            raise CodeError(f"vandermonde needs one node per unit: {len(nodes)} != {units}")
        if len(np.unique(nodes)) < units or not (nodes > 0.0).all():
            raise CodeError(f"vandermonde needs distinct positive nodes: {nodes.tolist()}")
        return nodes
