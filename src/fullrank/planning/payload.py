"""What an algorithm moves in an iteration, as numbers: enough to simulate or to plan with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from fullrank.algorithms import Dimensions
from fullrank.common.types import Matrix, UnitIndex
from fullrank.planning.traffic import Traffic, traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What an iteration moves, as ``planning.traffic`` takes it. By default nothing."""

    section_sizes: tuple[int, ...] = ()
    """Entries of each section of the parameters."""
    needs: Callable[[UnitIndex], Sequence[int]] = lambda unit: ()
    """Ids of the sections that a unit reads."""
    vector_size: int = 0
    """P, entries of a coded vector."""
    batch_entries: int = 0
    """B x row_size, entries of the minibatch."""

    @classmethod
    def of(cls, dimensions: Dimensions, *, batch_size: int) -> Self:
        """What the services move for an algorithm of these dimensions."""
        return cls(
            section_sizes=tuple(section.size for section in dimensions.sections),
            needs=dimensions.needs,
            vector_size=max(dimensions.unit_sizes),
            batch_entries=batch_size * dimensions.row_size,
        )

    def traffic(self, matrix: Matrix) -> Traffic:
        """Bytes of each row of C, shape (R, M)."""
        return traffic(
            matrix,
            needs=self.needs,
            section_sizes=self.section_sizes,
            vector_size=self.vector_size,
            batch_entries=self.batch_entries,
        )
