"""What a record of an iteration tells the planner."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from fullrank.codes import Code, codes, make_code
from fullrank.common.types import Matrix
from fullrank.planning import Observation
from fullrank.planning.traffic import Traffic
from fullrank.runs.record import IterationRecord


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


def label_of_record(record: IterationRecord) -> str:
    """The code as the command line takes it, for example ``cyclic,tolerance=2``."""
    return ",".join([record.code, *(f"{key}={value}" for key, value in _params_of(record).items())])


def code_of_record(record: IterationRecord, *, units: int, seed: int) -> Code:
    """The code of a recorded iteration, made again; its other parameters are the defaults."""
    return make_code(
        record.code, rows=record.code_rows, units=units, seed=seed, **_params_of(record)
    )


def _params_of(record: IterationRecord) -> dict[str, Any]:
    known = {each.name for each in fields(codes.get(record.code))}  # type: ignore[arg-type]
    return {"tolerance": record.tolerance} if "tolerance" in known else {}
