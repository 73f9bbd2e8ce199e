"""Payload bytes of one iteration by kind: the formula behind the metrics and the simulator.

Headers and framing are left out: below 1 % for all but toy sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.types import Matrix, Unit
from fullrank.updates import DIGEST_BYTES

FLOAT32_BYTES = 4
FLOAT64_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTraffic:
    """What one row of C costs on the wire, in bytes."""

    parameters: int
    """Sections, controller to learner."""
    sample: int
    """The minibatch, replay to learner."""
    digests: int
    """UnitDone, learner to controller."""
    coded: int
    """The coded vector, learner to controller."""


def support(row: Matrix) -> list[Unit]:
    """Units with a non-zero coefficient, ascending."""
    return [int(unit) for unit in np.flatnonzero(row)]


def sections_of(units: Sequence[Unit], needs: Callable[[Unit], Sequence[int]]) -> list[int]:
    """Ids of the sections that any of the units reads, ascending, each once."""
    return sorted({section for unit in units for section in needs(unit)})


def row_traffic(
    units: Sequence[Unit],
    *,
    needs: Callable[[Unit], Sequence[int]],
    section_sizes: Sequence[int],
    vector_size: int,
    batch_entries: int,
) -> RowTraffic:
    """Bytes for a row that combines ``units``.

    Args:
        units: Support of the row.
        needs: Section ids that a unit reads.
        section_sizes: Entries of each section, float32.
        vector_size: P, entries of a coded vector, float64.
        batch_entries: B x row_size, entries of the minibatch, float32.
    """
    entries = sum(section_sizes[section] for section in sections_of(units, needs))
    return RowTraffic(
        parameters=FLOAT32_BYTES * entries,
        sample=FLOAT32_BYTES * batch_entries,
        digests=DIGEST_BYTES * len(units),
        coded=FLOAT64_BYTES * vector_size,
    )
