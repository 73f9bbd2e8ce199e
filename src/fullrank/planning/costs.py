"""Payload bytes of one iteration by kind, for the metrics, the simulator and the planner.

Headers and framing are left out: they are below 1 % for all but toy sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fullrank.algorithms.problem import Problem
from fullrank.codes.base import is_lone_unit
from fullrank.common.types import IntArray, Matrix, UnitIndex
from fullrank.common.updates import DIGEST_BYTES
from fullrank.rounds.reports import report_bytes

FLOAT32_BYTES = 4
FLOAT64_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes on the wire for each learner, arrays of shape (N,)."""

    parameters: IntArray
    """Sections, controller to learner."""
    sample: IntArray
    """The minibatch, replay to learner."""
    digests: IntArray
    """UnitDone, learner to controller."""
    coded: IntArray
    """The coded vectors, learner to controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """Sizes of everything that an iteration moves; zero by default."""

    section_sizes: tuple[int, ...] = ()
    """Entries of each section of the parameters, float32."""
    needs: Callable[[UnitIndex], Sequence[int]] = lambda unit: ()
    """Ids of the sections that a unit reads."""
    vector_size: int = 0
    """P, entries of a coded vector."""
    batch_entries: int = 0
    """B x row_size, entries of the minibatch, float32."""
    share: Callable[[Sequence[UnitIndex]], float] = lambda units: 1.0
    """Share of the minibatch that some units read."""
    report_bytes: int = DIGEST_BYTES
    """Bytes of a unit's report."""

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Payload of an iteration of a problem."""
        return cls(
            section_sizes=tuple(section.size for section in problem.sections),
            needs=problem.needs,
            vector_size=problem.vector_size,
            batch_entries=problem.data.batch_size * problem.row_size,
            share=problem.share_of,
            report_bytes=report_bytes(problem),
        )

    def traffic(self, matrix: Matrix) -> Traffic:
        """Bytes of an iteration in which every row is assigned.

        Args:
            matrix: C with a row a learner, shape (N, M), or the rows by learner, shape (N, k, M).
        """
        learners, units = len(matrix), matrix.shape[-1]
        rows = matrix.reshape(learners, -1, units)
        reads = np.zeros((units, len(self.section_sizes)), dtype=np.float32)
        for unit in range(units):
            reads[unit, list(self.needs(unit))] = 1.0
        combined = (rows != 0).any(axis=1)
        sent = combined.astype(np.float32) @ reads > 0  # a section once, however many units read it
        sizes = np.asarray(self.section_sizes, dtype=np.int64)
        shares = np.array([self.share(np.flatnonzero(own).tolist()) for own in combined])
        return Traffic(
            parameters=FLOAT32_BYTES * (sent @ sizes),
            sample=FLOAT32_BYTES * np.rint(shares * self.batch_entries).astype(np.int64),
            digests=self.report_bytes * combined.sum(axis=1),
            coded=self.vector_size * entry_bytes(rows).sum(axis=1),
        )


def entry_bytes(rows: Matrix) -> IntArray:
    """Bytes of an entry of the vector of each row, shape (..., M); 0 where a row is empty.

    >>> entry_bytes(np.array([[1.0, 0.0], [1.0, 1.0], [0.5, 0.0], [0.0, 0.0]])).tolist()
    [4, 8, 8, 0]
    """
    return np.where(is_lone_unit(rows), FLOAT32_BYTES, FLOAT64_BYTES * rows.any(axis=-1))


def sections_of(
    units: Sequence[UnitIndex], needs: Callable[[UnitIndex], Sequence[int]]
) -> list[int]:
    """Ids of the sections that any of the units reads, ascending, each once."""
    return sorted({section for unit in units for section in needs(unit)})
