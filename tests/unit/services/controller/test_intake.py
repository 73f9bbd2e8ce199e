"""What one learner sends: current and well-formed becomes an event, all else is refused."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.services.controller.builders import SIZE, UNITS, join, make_run, open_round

from fullrank.common.errors import InvalidContribution
from fullrank.rpc.codec import LEARNER_CHUNKS, encode_chunks
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners.contributions import Intake
from fullrank_controller.rounds.events import Arrived, Reported
from fullrank_controller.run_state import Run

ROW = 1


@pytest.fixture
async def run() -> Run:
    made = make_run()
    join(made, 4)
    open_round(made, tolerance=1)
    return made


@pytest.fixture
async def intake(run: Run) -> Intake:
    return Intake(run, ROW)  # learner j holds row j


def contribution(run: Run, *, row: int = ROW, size: int = SIZE) -> pb.LearnerMessage:
    message = pb.LearnerMessage(
        coded=pb.Coded(ids=run.ids, row=row, batch_digest=b"d", compute_s=0.5)
    )
    for field in encode_chunks(np.arange(float(size)), array_id=row, field=LEARNER_CHUNKS):
        message.MergeFromString(bytes(field))
    return message


def report(run: Run, *, unit: int = 0, digest: bytes = bytes(16)) -> pb.LearnerMessage:
    return pb.LearnerMessage(units=[pb.UnitDone(ids=run.ids, unit=unit, digest=digest)])


async def test_a_whole_vector_becomes_an_event(run: Run, intake: Intake) -> None:
    assert intake.take(contribution(run)) is None
    event = run.inbox.get_nowait()
    assert isinstance(event, Arrived)
    assert (event.learner, event.row, event.batch_digest, event.compute_s) == (ROW, ROW, b"d", 0.5)
    assert event.coded.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert run.bytes_received == {"coded": 8 * SIZE}


async def test_header_and_chunks_may_come_apart(run: Run, intake: Intake) -> None:
    whole = contribution(run)
    assert intake.take(pb.LearnerMessage(coded=whole.coded)) is None
    assert run.inbox.empty()
    assert intake.take(pb.LearnerMessage(chunks=whole.chunks)) is None
    assert isinstance(run.inbox.get_nowait(), Arrived)


async def test_reports_come_before_the_vector_of_the_same_message(run: Run, intake: Intake) -> None:
    message = contribution(run)
    message.units.extend(report(run, unit=1).units)
    intake.take(message)
    first, second = run.inbox.get_nowait(), run.inbox.get_nowait()
    assert isinstance(first, Reported)
    assert (first.learner, first.digests) == (ROW, {1: bytes(16)})
    assert isinstance(second, Arrived)
    assert run.bytes_received["digests"] == 16


STALE: dict[str, Callable[[Ids], None]] = {
    "run": lambda ids: setattr(ids, "run", "other"),
    "term": lambda ids: setattr(ids, "term", ids.term - 1),
    "epoch": lambda ids: setattr(ids, "epoch", ids.epoch + 1),
    "iteration": lambda ids: setattr(ids, "iteration", ids.iteration - 1),
    "attempt": lambda ids: setattr(ids, "attempt", ids.attempt + 1),
}


@pytest.mark.parametrize("name", STALE)
async def test_stale_ids_are_refused_and_their_chunks_dropped(
    run: Run, intake: Intake, name: str
) -> None:
    message = contribution(run)
    STALE[name](message.coded.ids)
    refused = intake.take(message)
    assert refused is not None
    assert refused.reason == pb.REFUSAL_STALE
    assert refused.ids == message.coded.ids
    assert run.inbox.empty()
    assert not run.bytes_received


@pytest.mark.parametrize("name", STALE)
async def test_stale_reports_are_dropped(run: Run, intake: Intake, name: str) -> None:
    message = report(run)
    STALE[name](message.units[0].ids)
    assert intake.take(message) is None
    assert run.inbox.empty()


@pytest.mark.parametrize("name", ["compute_s", "started_s", "sent_s"])
@pytest.mark.parametrize("value", [-0.5, math.inf, math.nan])
async def test_what_is_no_duration_is_refused_by_name(
    run: Run, intake: Intake, name: str, value: float
) -> None:
    message = contribution(run)
    setattr(message.coded, name, value)
    with pytest.raises(InvalidContribution, match=rf"coded\.{name} is not a duration"):
        intake.take(message)
    assert run.inbox.empty()


async def test_an_earlier_attempt_of_the_round_is_current(run: Run, intake: Intake) -> None:
    message = contribution(run)
    run.attempt += 1
    assert intake.take(message) is None
    assert not run.inbox.empty()


async def test_between_rounds_everything_is_stale(run: Run, intake: Intake) -> None:
    message = contribution(run)
    run.round = None
    refused = intake.take(message)
    assert refused is not None
    assert refused.reason == pb.REFUSAL_STALE


async def test_a_row_that_was_received_is_refused_as_duplicate(run: Run, intake: Intake) -> None:
    assert run.round is not None
    run.round.offer(learner=ROW, row=ROW)
    refused = intake.take(contribution(run))
    assert refused is not None
    assert refused.reason == pb.REFUSAL_DUPLICATE
    assert refused.message == f"row {ROW} was already received"
    assert run.inbox.empty()


async def test_a_refusal_does_not_spoil_the_next_contribution(run: Run, intake: Intake) -> None:
    stale = contribution(run)
    stale.coded.ids.term -= 1
    intake.take(stale)
    assert intake.take(contribution(run)) is None
    assert isinstance(run.inbox.get_nowait(), Arrived)


@pytest.mark.parametrize(("unit", "digest"), [(UNITS, bytes(16)), (0, bytes(15)), (0, b"")])
async def test_a_report_of_no_unit_or_no_digest_is_invalid(
    run: Run, intake: Intake, unit: int, digest: bytes
) -> None:
    with pytest.raises(InvalidContribution, match=f"unit {unit} of 3, digest of {len(digest)}"):
        intake.take(report(run, unit=unit, digest=digest))
    assert run.inbox.empty()


async def test_a_report_of_somebody_elses_unit_is_invalid(run: Run, intake: Intake) -> None:
    assert run.deal is not None
    [other] = np.flatnonzero(run.deal.code.matrix[ROW] == 0.0)
    with pytest.raises(InvalidContribution, match=f"unit {other} is not of this learner's row"):
        intake.take(report(run, unit=int(other)))
    assert run.inbox.empty()


@pytest.mark.parametrize("row", [ROW + 1, 99])
async def test_a_row_of_somebody_else_is_invalid(run: Run, intake: Intake, row: int) -> None:
    with pytest.raises(InvalidContribution, match=f"coded.row {row} was not assigned"):
        intake.take(contribution(run, row=row))


@pytest.mark.parametrize(
    ("name", "value"), [("array", 0), ("offset", 8), ("total", 8), ("crc32c", 1), ("data", b"")]
)
async def test_a_wrong_chunk_is_invalid_and_named(
    run: Run, intake: Intake, name: str, value: int | bytes
) -> None:
    message = contribution(run)
    setattr(message.chunks[0], name, value)
    with pytest.raises(InvalidContribution, match=f"chunk.{name}"):
        intake.take(message)
    assert run.inbox.empty()


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
async def test_a_vector_of_another_length_is_invalid(run: Run, intake: Intake, size: int) -> None:
    with pytest.raises(InvalidContribution, match=r"chunk\.total"):
        intake.take(contribution(run, size=size))


async def test_chunks_before_their_header_are_invalid(run: Run, intake: Intake) -> None:
    with pytest.raises(InvalidContribution, match="before their Coded header"):
        intake.take(pb.LearnerMessage(chunks=contribution(run).chunks))


@pytest.mark.parametrize(
    "message", [pb.LearnerMessage(hello=pb.Hello()), pb.LearnerMessage(ready=pb.Ready())]
)
async def test_a_second_introduction_is_invalid(intake: Intake, message: pb.LearnerMessage) -> None:
    with pytest.raises(InvalidContribution, match="it opens the stream"):
        intake.take(message)
