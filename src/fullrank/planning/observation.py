"""Observations of iterations, limited to what services see; the planner's only input."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullrank.codes.base import Code, codes
from fullrank.common.types import IntArray, LearnerId, Matrix, Times
from fullrank.planning.costs import Traffic
from fullrank.runs.record import IterationRecord


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observation:
    """One iteration, learner by learner; arrays of shape (n,) over ``learners``.

    A learner that has not arrived at the commit is censored: it took longer than ``round_s``.
    """

    code: str
    """Label of the code, as that of a candidate."""
    learners: tuple[LearnerId, ...]
    """Learners that held a row with a unit."""
    load: IntArray
    """Units assigned to each learner."""
    compute_s: Times
    """Reported computing times; nan where censored."""
    arrival_s: Times
    """Time from the assignment to the arrival of the coded vector; nan where censored."""
    round_s: float
    """Time from the assignment to the commit."""
    moved: Traffic
    """Bytes of each learner's rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """K iterations, newest last, as arrays of shape (K, N) over the present learners.

    For a learner that was absent ``load`` is 0 and the times are nan.
    """

    load: IntArray
    compute_s: Times
    arrival_s: Times
    round_s: Times
    """Round time of each iteration, shape (K,)."""

    @classmethod
    def of(cls, observations: Collection[Observation], learners: Sequence[LearnerId]) -> "Window":
        """The columns of the present learners."""
        shape = (len(observations), len(learners))
        load = np.zeros(shape, dtype=np.int64)
        compute_s, arrival_s = np.full(shape, np.nan), np.full(shape, np.nan)
        column = {learner: index for index, learner in enumerate(learners)}
        for row, observation in enumerate(observations):
            ids = observation.learners
            present = [index for index, learner in enumerate(ids) if learner in column]
            columns = [column[ids[index]] for index in present]
            load[row, columns] = observation.load[present]
            compute_s[row, columns] = observation.compute_s[present]
            arrival_s[row, columns] = observation.arrival_s[present]
        round_s = np.array([observation.round_s for observation in observations])
        return cls(load=load, compute_s=compute_s, arrival_s=arrival_s, round_s=round_s)


def observation_of_record(
    record: IterationRecord, code: Code, moved: Callable[[Matrix], Traffic]
) -> Observation | None:
    """Observation of a recorded iteration; None if rows were added in it or its times are missing.

    Args:
        record: The iteration.
        code: Its code.
        moved: Bytes that each learner's rows move.
    """
    if record.attempt > 0 or not record.arrival_s:
        return None
    learners = tuple(sorted(each for each, row in record.rows.items() if row < code.rows))
    shares = [record.rows[learner] // code.rows_per_learner for learner in learners]
    return Observation(
        code=label_of_record(record),
        learners=learners,
        load=code.load[shares],
        compute_s=np.array([record.compute_s.get(learner, np.nan) for learner in learners]),
        arrival_s=np.array([record.arrival_s.get(learner, np.nan) for learner in learners]),
        round_s=max(*record.arrival_s.values(), (record.hedged and record.decodable_s) or 0.0),
        moved=moved(code.blocks[shares]),
    )


def label_of_record(record: IterationRecord) -> str:
    """The label of the recorded code."""
    return label_of(record.code, record.tolerance)


def label_of(name: str, tolerance: int) -> str:
    """A code in the form of the command line, for example ``cyclic,tolerance=2``."""
    params = [f"{key}={value}" for key, value in params_of(name, tolerance).items()]
    return ",".join([name, *params])


def params_of(name: str, tolerance: int) -> dict[str, Any]:
    """The parameters with which the planner asks for a code of a tolerance."""
    return codes.get(name).tolerating(tolerance) or {}
