"""Payload bytes of one iteration by kind: the formula behind the metrics and the simulator.

Headers and framing are left out: below 1 % for all but toy sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.types import IntArray, Matrix, Unit
from fullrank.updates import DIGEST_BYTES

FLOAT32_BYTES = 4
FLOAT64_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What each row of C costs on the wire, bytes, arrays of shape (R,)."""

    parameters: IntArray
    """Sections, controller to learner."""
    sample: IntArray
    """The minibatch, replay to learner."""
    digests: IntArray
    """UnitDone, learner to controller."""
    coded: IntArray
    """The coded vector, learner to controller."""


def support(row: Matrix) -> list[Unit]:
    """Units with a non-zero coefficient, ascending."""
    return [int(unit) for unit in np.flatnonzero(row)]


def sections_of(units: Sequence[Unit], needs: Callable[[Unit], Sequence[int]]) -> list[int]:
    """Ids of the sections that any of the units reads, ascending, each once."""
    return sorted({section for unit in units for section in needs(unit)})


def traffic(
    matrix: Matrix,
    *,
    needs: Callable[[Unit], Sequence[int]],
    section_sizes: Sequence[int],
    vector_size: int,
    batch_entries: int,
) -> Traffic:
    """Bytes of an iteration in which every row of C is assigned.

    Args:
        matrix: C, shape (R, M).
        needs: Section ids that a unit reads.
        section_sizes: Entries of each section, float32.
        vector_size: P, entries of a coded vector, float64.
        batch_entries: B x row_size, entries of the minibatch, float32.
    """
    rows, units = matrix.shape
    reads = np.zeros((units, len(section_sizes)), dtype=np.float32)
    for unit in range(units):
        reads[unit, list(needs(unit))] = 1.0
    combined = matrix != 0
    sent = combined.astype(np.float32) @ reads > 0  # each section once, however many units read it
    sizes = np.asarray(section_sizes, dtype=np.int64)
    return Traffic(
        parameters=FLOAT32_BYTES * (sent @ sizes),
        sample=np.full(rows, FLOAT32_BYTES * batch_entries),
        digests=DIGEST_BYTES * combined.sum(axis=1),
        coded=np.full(rows, FLOAT64_BYTES * vector_size),
    )
