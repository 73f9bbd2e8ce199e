"""A round over the network ends with the decision that its rows and reports allow, and not before.

All events are queued before the round runs, so that none of it waits.
"""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from tests.unit.services.controller.builders import SIZE, UNITS, join, make_config, make_run
from tests.waiting import WAIT_S

from fullrank.codes import Code, support
from fullrank.common.errors import Corrupted
from fullrank.common.types import FloatArray
from fullrank.common.updates import snap, unit_digest
from fullrank.replay.samplers import Sample
from fullrank.rounds.decision import Decoded, Verdict
from fullrank.rounds.round import Round
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.membership.placement import Placement
from fullrank_controller.membership.row_assignment import RowAssignment
from fullrank_controller.rounds.events import Arrived
from fullrank_controller.rounds.open_round import OpenRound
from fullrank_controller.rounds.round_runner import RoundRunner
from fullrank_controller.run import Run

SAMPLE = Sample(table="transitions", seed=0, iteration=5, tail=0, head=8, size=1)
CLOSE = 1.0 + 2.0**-24
NEARLY_EQUAL = Code(
    name="nearly equal",
    matrix=np.array([[1.0, 1.0, 0.0], [1.0, CLOSE, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
)
"""Rows 0 and 1 are so close that three rows decode and prove nothing; row 3 mends it."""
UPDATES = [snap(np.full(SIZE, value, np.float32)) for value in (0.3, -0.4, 0.1)]


class Encoder:
    """Encodes nothing: nobody reads what is sent."""

    def encode(self, *_: Any, **__: Any) -> list[tuple[str, bytes]]:
        return []

    encode_units = encode


def open_code(run: Run, code: Code) -> OpenRound:
    """Open a round in which learner j holds row j."""
    members = join(run, code.rows)
    assignment = RowAssignment(
        epoch=1,
        requested=run.membership.requested,
        code=code,
        holders=dict(enumerate(members)),
        members=len(members),
        placement=Placement(holders=tuple(range(code.rows)), shared=0, changed=0),
    )
    run.membership.assignment = assignment
    return run.reception.open(assignment, Round(5, code, target_sizes=[SIZE] * UNITS), now=0.0)


def arrives(run: Run, opened: OpenRound, row: int, *, updates: list[FloatArray] = UPDATES) -> None:
    """Queue the reports and the vector of a row."""
    coefficients = opened.assignment.code.matrix[row]
    ids = opened.ids
    done = [
        pb.UnitDone(ids=ids, unit=unit, digest=unit_digest(updates[unit]))
        for unit in support(coefficients)
    ]
    run.reception.report(row, done)
    run.reception.arrive(
        Arrived(
            ids=ids,
            learner=row,
            row=row,
            coded=coefficients @ np.stack(updates).astype(np.float64),
            batch_digest=b"",
            compute_s=0.0,
            started_s=0.0,
            sent_s=0.0,
        ),
        streamed=False,
    )


async def decided(
    run: Run, opened: OpenRound, *settings: str, deadline_s: float = WAIT_S
) -> Decoded:
    async def examine(row: int, units: object) -> None:
        raise AssertionError("every vector is finite")

    runner = RoundRunner(
        make_config(*settings).controller,
        run,
        opened,
        cast(Any, Encoder()),
        SAMPLE,
        examine=examine,
        deadline_s=deadline_s,
        watchdog=cast(Any, SimpleNamespace(phase=lambda name: nullcontext())),
    )
    return (await asyncio.wait_for(runner.run(), WAIT_S)).decision


async def test_an_inexact_result_is_not_committed_while_a_row_may_mend_it() -> None:
    run = make_run()
    opened = open_code(run, NEARLY_EQUAL)
    for row in range(4):
        arrives(run, opened, row)
    decision = await decided(run, opened, "controller.inexact=commit")
    assert decision.verdict is Verdict.COMMIT
    assert [row for row, _ in decision.rows] == [0, 1, 2, 3]


async def test_a_corrupt_round_names_its_parties_at_the_deadline_though_a_row_is_awaited() -> None:
    run = make_run()
    opened = open_code(run, Code(name="pairs", matrix=np.eye(3)[[0, 0, 1, 2, 2]]))
    wrong = [snap(UPDATES[0] + np.float32(2.0**-20)), *UPDATES[1:]]
    for row in range(4):
        arrives(run, opened, row, updates=wrong if row == 1 else UPDATES)
    with pytest.raises(Corrupted, match=r"units \[0\], .*learner 0 .*learner 1 "):
        await decided(run, opened, "controller.undecodable=fail", deadline_s=0.0)


async def test_a_learner_that_was_left_out_of_a_commit_is_quarantined() -> None:
    run = make_run()
    opened = open_code(run, Code(name="thrice", matrix=np.eye(3)[[0, 0, 0, 1, 2]]))
    wrong = [snap(UPDATES[0] + np.float32(2.0**-20)), *UPDATES[1:]]
    for row in (0, 1, 3, 4, 2):
        arrives(run, opened, row, updates=wrong if row == 1 else UPDATES)
    decision = await decided(run, opened)
    assert (decision.verdict, decision.culprit) == (Verdict.COMMIT, 1)
    assert [member.learner for member in run.roster.members if member.quarantined] == [1]
