"""Learners and rounds of a problem whose target is a matrix of sums."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from fullrank.algorithms import DataMode, Problem, Unit
from fullrank.codes import Code, make_code
from fullrank.codes.targets import each_unit, sum_of_units, sums_of_groups
from fullrank.common.types import FloatArray, Matrix, UnitIndex
from fullrank.common.updates import snap
from fullrank.rounds.decision import Decoded, Verdict
from fullrank.rounds.decoding import open_round
from fullrank.training.worker import AssignedRow, Worker

SIZES = (7, 7, 4, 4, 6, 2)
SEED = 5
BATCH = np.empty((0, 1), np.float32)


class Draws:
    """Gradients that are drawn by iteration and unit."""

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        for unit in units:
            generator = np.random.default_rng([iteration, unit])
            yield unit, snap(generator.uniform(-0.5, 0.5, SIZES[unit]).astype(np.float32))

    def fingerprint(self) -> str:
        return "draws"


def problem(target: Matrix | None) -> Problem:
    return Problem(
        units=tuple(Unit(agents=(0, 1), part=part) for part in range(6)),
        unit_sizes=SIZES,
        sections=(),
        reads=((),) * 6,
        row_size=1,
        data=DataMode(),
        target=target,
    )


def centralised(target: Matrix, iteration: int) -> FloatArray:
    updates = np.zeros((6, 7))
    for unit, update in Draws().compute(BATCH, range(6), iteration=iteration):
        updates[unit, : len(update)] = update
    return np.asarray(target @ updates, np.float32)


@pytest.mark.parametrize(
    ("name", "rows", "target"),
    [
        ("cyclic", 8, each_unit(6)),
        ("cyclic", 8, sum_of_units(6)),
        ("mds", 8, sums_of_groups(3, 2)),
        ("replication", 12, sums_of_groups(2, 3)),
        ("fractional", 6, sum_of_units(6)),
        ("fractional", 6, sums_of_groups(3, 2)),
    ],
)
def test_workers_and_rounds_recover_the_targets_of_their_problem(
    name: str, rows: int, target: Matrix
) -> None:
    code = make_code(name, rows=rows, units=6, target=target)
    worker = Worker(problem(target), Draws(), seed=SEED)
    for iteration in range(3):
        order = np.random.default_rng(iteration).permutation(rows)
        decision = committed(code, worker, iteration, [int(row) for row in order])
        assert decision.updates.tobytes() == (centralised(target, iteration) + 0.0).tobytes()
        assert decision.exact


def committed(code: Code, worker: Worker, iteration: int, order: Sequence[int]) -> Decoded:
    round_ = open_round(problem(code.target), iteration, code, seed=SEED)
    for learner in order:
        assigned = AssignedRow.of(learner, code.matrix[learner])
        for unit, report, complete in worker.compute([assigned], BATCH, iteration=iteration):
            round_.report(unit, report, learner=learner)
            for row, coded in complete.items():
                round_.offer(learner=learner, row=row, coded=coded)
        decision = round_.decide()
        if decision.verdict is Verdict.COMMIT:
            assert isinstance(decision, Decoded)
            return decision
    raise AssertionError("all rows came and nothing was committed")
