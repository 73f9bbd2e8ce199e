"""The computation of an assignment, right or wrong."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fullrank.algorithms import Gradients
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.common.updates import batch_digest, snap
from fullrank.replay.items import Gathered
from fullrank.training.worker import Worker
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.active_assignment import Contribution, rows_of
from fullrank_learner.run_context import RunContext


class _WrongGradients:
    """Compute the learner's updates with one wrong entry each."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    def compute(self, *words: Any, **named: Any) -> Iterator[tuple[UnitIndex, FloatArray]]:
        for unit, update in self._gradients.compute(*words, **named):
            wrong = update.copy()
            wrong[0] = snap(wrong[:1] + np.float32(2.0**-20))[0]
            yield unit, wrong

    def fingerprint(self) -> str:
        return self._gradients.fingerprint()


def wrong_worker(context: RunContext) -> Worker:
    wrong = _WrongGradients(context.algorithm.gradients)
    return Worker(context.problem, wrong, seed=context.config.seed)


def compute(
    worker: Worker, assignment: pb.Assignment, batch: Gathered
) -> tuple[list[pb.UnitDone], Contribution]:
    units: list[pb.UnitDone] = []
    computed = worker.compute(
        rows_of(assignment),
        batch.rows,
        iteration=assignment.ids.iteration,
        check_cancelled=lambda: None,
        report=lambda unit, digest: units.append(
            pb.UnitDone(ids=assignment.ids, unit=unit, digest=digest)
        ),
    )
    unit, digest = computed.last
    reports = [*units, pb.UnitDone(ids=assignment.ids, unit=unit, digest=digest)]
    digest = batch_digest(batch.rows)
    return reports, Contribution(computed, digest, batch.size_bytes, batch.items, 0.0)
