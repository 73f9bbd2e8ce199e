"""Gaussian coefficients, each present with a given probability."""

from dataclasses import dataclass

import numpy as np

from fullrank.codes.base import Code, CodeFamily, dyadic, register, require_enough_rows
from fullrank.common.errors import CodeError
from fullrank.common.seeding import stream

MAX_DRAWS = 1000


@register("random_sparse")
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSparse(CodeFamily):
    """c_ji ~ N(0, 1) with probability p, else 0 [Wang21, section III-C; DARL1N, section V].

    Differs from the papers in: redrawn until C has rank M and neither a row nor a column is zero;
    coefficients are rounded so that encoding is exact (``base.dyadic``). The tolerance depends on
    the draw and is measured.

    Properties:
        Tolerance: measured; it depends on the draw.
        Load: p M in every row on average.
        Exists: R >= M and p is large enough to find a matrix of rank M.

    Args:
        density: p (xi in [DARL1N]); 0.8 in both papers' experiments.

    >>> code = RandomSparse().build(rows=6, units=3, seed=0)
    >>> code.matrix.shape, code.certificate
    ((6, 3), 'exhaustive')
    """

    density: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 < self.density <= 1.0:
            raise CodeError(f"random_sparse needs 0 < density <= 1: {self.density}")

    def rows_for(self, units: int) -> int:
        """M + 1; whether they survive a loss depends on the draw."""
        return units + 1

    def build(self, *, rows: int, units: int, seed: int) -> Code:
        """The first usable draw.

        Raises:
            CodeError: R < M, or no usable draw: the density is too low for these sizes.
        """
        require_enough_rows("random_sparse", rows=rows, units=units)
        for draw in range(MAX_DRAWS):
            generator = stream(seed, "random_sparse", draw)
            present = generator.random((rows, units)) < self.density
            if not (present.any(axis=0).all() and present.any(axis=1).all()):
                continue
            matrix = dyadic(generator.standard_normal((rows, units)) * present)
            if np.linalg.matrix_rank(matrix) == units:
                return Code(name="random_sparse", matrix=matrix)
        raise CodeError(
            f"random_sparse found no matrix of rank {units} without an empty row in {MAX_DRAWS} "
            f"draws with density = {self.density}; raise the density"
        )
