"""A worker's coded vectors: combinations in float64, and units alone as they are."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fullrank.algorithms import DataMode, Problem, Unit
from fullrank.common.types import EncodedVector, FloatArray, UnitIndex
from fullrank.training.worker import AssignedRow, Worker

SIZES = (5, 3)


class Reused:
    """Updates u_i = i + 1, which the next one overwrites."""

    def compute(
        self, batch: FloatArray, units: Sequence[UnitIndex], **_: Any
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        buffer = np.empty(max(SIZES), np.float32)
        for unit in units:
            buffer[:] = unit + 1
            yield unit, buffer[: SIZES[unit]]

    def fingerprint(self) -> str:
        return "reused"


def coded(*rows: AssignedRow) -> dict[int, EncodedVector]:
    """The coded vectors of rows, by row."""
    problem = Problem(
        units=tuple(Unit(agents=(0, 1), part=part) for part in range(len(SIZES))),
        unit_sizes=SIZES,
        sections=(),
        reads=((),) * len(SIZES),
        row_size=1,
        data=DataMode(),
    )
    worker = Worker(problem, Reused(), seed=0)
    batch = np.empty((0, 1), np.float32)
    computed = worker.compute(rows, batch, iteration=0)
    return {row: vector for unit in computed for row, vector in unit.coded.items()}


def test_a_row_of_one_unit_with_coefficient_1_is_its_update_padded() -> None:
    vectors = coded(
        AssignedRow.of(4, np.array([1.0, 0.0])), AssignedRow.of(7, np.array([0.0, 1.0]))
    )
    assert [vectors[row].dtype for row in (4, 7)] == [np.float32, np.float32]
    assert vectors[4].tolist() == [1.0] * 5
    assert vectors[7].tolist() == [2.0] * 3 + [0.0] * 2


def test_other_rows_are_in_double_precision() -> None:
    rows = [AssignedRow.of(0, np.array([0.1, 0.0])), AssignedRow.of(1, np.array([1.0, 1.0]))]
    vectors = coded(*rows, AssignedRow.of(2, np.array([0.0, 1.0])))
    assert vectors[0].tolist() == [0.1] * 5
    assert vectors[1].tolist() == [3.0] * 3 + [1.0] * 2
    assert [vectors[row].dtype for row in range(3)] == [np.float64, np.float64, np.float32]
