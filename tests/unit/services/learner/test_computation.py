"""The computation of an assignment of several rows."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.waiting import WAIT_S

from fullrank.algorithms import DataMode, Problem, Unit
from fullrank.common.errors import Cancelled
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.replay.items import Gathered
from fullrank.training.worker import Worker
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.active_assignment import ActiveAssignment, Progress
from fullrank_learner.contributor import compute
from fullrank_learner.run_context import LearnerContext

UNITS, SIZE = 4, 3


class Gated:
    """Updates u_i = i + 1; those after the first ``free`` units wait until they are released."""

    def __init__(self, free: int) -> None:
        self.free, self.released = free, threading.Event()
        self.computed: list[UnitIndex] = []

    def compute(
        self,
        batch: FloatArray,
        units: Sequence[UnitIndex],
        *,
        iteration: int,
        row: int | None = None,
        check_cancelled: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[UnitIndex, FloatArray]]:
        for number, unit in enumerate(units):
            check_cancelled()
            if number >= self.free:
                assert self.released.wait(WAIT_S)
                check_cancelled()
            self.computed.append(unit)
            yield unit, np.full(SIZE, unit + 1, np.float32)

    def fingerprint(self) -> str:
        return "gated"


def context_of(gradients: Gated) -> LearnerContext:
    problem = Problem(
        units=tuple(Unit(agents=(0, 1), part=part) for part in range(UNITS)),
        unit_sizes=(SIZE,) * UNITS,
        sections=(),
        reads=((),) * UNITS,
        row_size=1,
        data=DataMode(),
    )
    return cast(LearnerContext, SimpleNamespace(worker=Worker(problem, gradients, seed=0)))


async def assigned() -> ActiveAssignment:
    """Rows 4 and 5: units 3 and 1, then units 1 and 0."""
    rows = [
        pb.Row(row=4, units=[3, 1], coefficients=[1.0, 2.0]),
        pb.Row(row=5, units=[1, 0], coefficients=[4.0, 8.0]),
    ]

    async def fetch() -> Gathered:
        return Gathered(np.empty((0, 1), np.float32), 0)

    return ActiveAssignment(pb.Assignment(rows=rows), asyncio.create_task(fetch()), [])


def facts(progress: Progress) -> tuple[list[int], dict[int, Any]]:
    reports = [done.unit for done in progress.reports]
    return reports, {row.row: row.coded.tolist() for row in progress.rows}


async def test_a_row_is_passed_on_while_the_next_one_is_still_computed() -> None:
    gradients, work = Gated(free=2), await assigned()
    with ThreadPoolExecutor(1) as pool:
        computing = compute(context_of(gradients), work, pool, None)
        passed = [facts(await anext(computing))]
        while not passed[-1][1]:
            passed.append(facts(await anext(computing)))
        assert gradients.computed == [3, 1]
        assert [unit for units, _ in passed for unit in units] == [3, 1]
        assert passed[-1][1] == {4: [4.0 + 2 * 2.0] * SIZE}
        gradients.released.set()
        assert [facts(progress) async for progress in computing] == [
            ([0], {5: [4 * 2.0 + 8 * 1.0] * SIZE})
        ]


async def test_an_abandoned_assignment_reports_the_units_that_it_has_computed() -> None:
    gradients, work = Gated(free=1), await assigned()
    with ThreadPoolExecutor(1) as pool:
        computing = compute(context_of(gradients), work, pool, None)
        assert facts(await anext(computing)) == ([3], {})
        work.stop()
        gradients.released.set()
        with pytest.raises(Cancelled):
            await anext(computing)
    assert gradients.computed == [3]


async def test_a_computation_that_nobody_follows_has_ended_when_it_is_closed() -> None:
    gradients, work = Gated(free=1), await assigned()
    with ThreadPoolExecutor(1) as pool:
        computing = compute(context_of(gradients), work, pool, None)
        await anext(computing)
        closing = asyncio.create_task(computing.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        gradients.released.set()
        await closing
        assert pool.submit(lambda: gradients.computed).result() == [3]
