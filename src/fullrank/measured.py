"""What a record of an iteration tells the planner."""

from collections.abc import Callable

import numpy as np

from fullrank.codes import Code, codes, make_code
from fullrank.metrics import IterationRecord
from fullrank.planning import Observation
from fullrank.traffic import Traffic
from fullrank.types import Matrix


def observed(
    record: IterationRecord, code: Code, moved: Callable[[Matrix], Traffic]
) -> Observation | None:
    """What services saw; None where rows were dealt again in the midst, or not recorded.

    Args:
        record: Of the iteration.
        code: Its C.
        moved: Bytes that each row of a matrix moves.
    """
    if record.attempt > 0 or not record.arrival_s:
        return None
    learners = tuple(sorted(record.rows))
    rows = [record.rows[learner] for learner in learners]
    return Observation(
        learners=learners,
        load=code.load[rows],
        compute_s=np.array([record.compute_s.get(each, np.nan) for each in learners]),
        arrival_s=np.array([record.arrival_s.get(each, np.nan) for each in learners]),
        round_s=max(record.arrival_s.values()),
        moved=moved(code.matrix[rows]),
    )


def code_of_record(record: IterationRecord, *, units: int, seed: int) -> Code:
    """The code of a recorded iteration, made again."""
    family = codes.get(record.code)
    params = {"tolerance": record.tolerance} if hasattr(family, "tolerance") else {}
    return make_code(record.code, rows=record.code_rows, units=units, seed=seed, **params)
