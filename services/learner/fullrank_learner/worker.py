"""The computing half of a learner: assignment and minibatch to coded vectors; no network."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fullrank.algorithms import Algorithm, IndependentAlgorithm
from fullrank.common.types import FloatArray, UnitIndex, Vector
from fullrank.common.updates import add_scaled, batch_digest, unit_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOfC:
    """A row that this learner holds: its units and their coefficients."""

    row: int
    units: tuple[UnitIndex, ...]
    coefficients: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The rows' coded vectors, float64 of length P, and how they came about."""

    coded: Mapping[int, Vector]
    last: tuple[UnitIndex, bytes]
    """The unit computed last and its digest, which need no message of their own."""
    batch_digest: bytes
    compute_s: float


class Worker:
    """Computes on the calling thread; abandoned through ``check_cancelled``.

    Args:
        algorithm: Holds the parameters, already written by the session.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._independent = algorithm if isinstance(algorithm, IndependentAlgorithm) else None
        self._length = max(algorithm.unit_sizes)

    def compute(
        self,
        rows: Sequence[RowOfC],
        batch: FloatArray,
        *,
        iteration: int,
        check_cancelled: Callable[[], None],
        report: Callable[[UnitIndex, bytes], None],
    ) -> Computed:
        """Compute the rows' units, report all but the last, and combine.

        Raises:
            Cancelled: ``check_cancelled`` raised it; nothing was combined that will be sent.
        """
        start = time.perf_counter()
        coded = {row.row: np.zeros(self._length) for row in rows}
        coefficients = {
            (row.row, unit): coefficient
            for row in rows
            for unit, coefficient in zip(row.units, row.coefficients, strict=True)
        }
        done: list[tuple[UnitIndex, bytes]] = []
        for sharing, unit, update in self._updates(rows, batch, iteration, check_cancelled):
            if done:
                report(*done[-1])
            done.append((unit, unit_digest(update)))
            for row in sharing:
                if (coefficient := coefficients.get((row.row, unit))) is not None:
                    add_scaled(coded[row.row], coefficient, update)
        return Computed(
            coded=coded,
            last=done[-1],
            batch_digest=batch_digest(batch),
            compute_s=time.perf_counter() - start,
        )

    def _updates(
        self,
        rows: Sequence[RowOfC],
        batch: FloatArray,
        iteration: int,
        check_cancelled: Callable[[], None],
    ) -> Iterator[tuple[Sequence[RowOfC], UnitIndex, FloatArray]]:
        """Every update with the rows that it may go into; shared samples make one for all."""
        if self._independent is not None:
            for row in rows:
                for unit, update in self._independent.updates_of_row(
                    row.row, row.units, iteration=iteration, check_cancelled=check_cancelled
                ):
                    yield [row], unit, update
            return
        units = sorted({unit for row in rows for unit in row.units})
        for unit, update in self._algorithm.updates(
            batch, units, iteration=iteration, check_cancelled=check_cancelled
        ):
            yield rows, unit, update


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What the mathematics of this process gives on the run's own shapes."""

    digests: tuple[bytes, ...]
    stable: bool


def probe(algorithm: Algorithm, batch: FloatArray) -> Probe:
    """Compute units at widths 1, 2, 3 and M and several positions; one digest must come out.

    Args:
        algorithm: As drawn from the seed, before any section was written.
        batch: Synthetic transitions, the same for every learner.
    """
    first, middle, last = 0, algorithm.units // 2, algorithm.units - 1
    chosen = [range(algorithm.units), {first}, {last}, {first, last}, {first, middle, last}]
    found: dict[UnitIndex, set[bytes]] = {unit: set() for unit in range(algorithm.units)}
    for units in chosen:
        for unit, update in algorithm.updates(batch, sorted(units), iteration=0):
            found[unit].add(unit_digest(update))
    return Probe(
        digests=tuple(min(found[unit]) for unit in range(algorithm.units)),
        stable=all(len(digests) == 1 for digests in found.values()),
    )
