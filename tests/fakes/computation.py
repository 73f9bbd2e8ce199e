"""The computation of an assignment, right or wrong."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fullrank.algorithms import Gradients
from fullrank.common.types import EncodedVector, FloatArray, UnitIndex
from fullrank.common.updates import batch_digest, snap
from fullrank.replay.items import Gathered, Items
from fullrank.training.worker import Worker
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.active_assignment import rows_of
from fullrank_learner.run_context import LearnerContext


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


def wrong_worker(context: LearnerContext) -> Worker:
    wrong = _WrongGradients(context.algorithm.gradients)
    return Worker(context.problem, wrong, seed=context.config.seed)


class Contribution(NamedTuple):
    """Coded vectors by row, with facts of their minibatch."""

    coded: dict[int, EncodedVector]
    batch_digest: bytes
    batch_bytes: int
    items: Items


def compute(
    worker: Worker, assignment: pb.Assignment, batch: Gathered
) -> tuple[list[pb.UnitDone], Contribution]:
    units: list[pb.UnitDone] = []
    coded: dict[int, EncodedVector] = {}
    computing = worker.compute(rows_of(assignment), batch.rows, iteration=assignment.ids.iteration)
    for unit, digest, complete in computing:
        units.append(pb.UnitDone(ids=assignment.ids, unit=unit, digest=digest))
        coded |= complete
    digest = batch_digest(batch.rows)
    return units, Contribution(coded, digest, batch.size_bytes, batch.items)
