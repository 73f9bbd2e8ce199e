"""Current, well-formed contributions become events; all others are refused."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import DTypeLike
from tests.unit.services.controller.builders import SIZE, UNITS, join, make_run, open_round

from fullrank.common.errors import InvalidContribution
from fullrank.host.shared_memory import START, ReadBlock, WrittenBlock
from fullrank.net.codec import LEARNER_CHUNKS, encode_chunks
from fullrank.rounds.decoding import ExactDecoding
from fullrank.rounds.round import Round
from fullrank.run.round import OpenRound
from fullrank.run.round_orders import Arrived, Reported, RoundEvent
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners.servicer import ContributionParser
from fullrank_controller.membership.member import Member
from fullrank_controller.run import Run

ROW = 1


@pytest.fixture
async def run() -> Run:
    run = make_run()
    join(run, 4)
    open_round(run, tolerance=1)
    return run


@pytest.fixture
async def parser(run: Run) -> ContributionParser:
    return ContributionParser(
        run.identity, run.reception, run.roster.members[ROW]
    )  # learner j holds row j


def opened(run: Run) -> OpenRound[Member]:
    """The open round."""
    assert run.reception.opened is not None
    return run.reception.opened


def ids_of(run: Run) -> Ids:
    """Ids of the open round."""
    return run.identity.ids(opened(run))


async def event(run: Run) -> RoundEvent:
    """The next event, which is queued already."""
    queued = await run.reception.next_event(deadline=0.0)
    assert queued is not None
    return queued


def contribution(
    run: Run, *, row: int = ROW, precision: DTypeLike = np.float64
) -> pb.LearnerMessage:
    message = pb.LearnerMessage(
        coded=pb.Coded(ids=ids_of(run), row=row, batch_digest=b"d", compute_s=0.5)
    )
    coded = np.arange(SIZE, dtype=precision)
    for field in encode_chunks(coded, array_id=row, field=LEARNER_CHUNKS):
        message.MergeFromString(bytes(field))
    return message


def shared(
    run: Run, block: WrittenBlock, *, damage: int = 0, precision: DTypeLike = np.float64
) -> pb.LearnerMessage:
    """A vector in the learner's block."""
    checksum = block.write(START, np.arange(SIZE, dtype=precision))
    header = pb.Coded(ids=ids_of(run), row=ROW, offset=START, crc32c=checksum ^ damage)
    return pb.LearnerMessage(coded=header)


def report(run: Run, *, unit: int = 0, digest: bytes = bytes(16)) -> pb.LearnerMessage:
    return pb.LearnerMessage(units=[pb.UnitDone(ids=ids_of(run), unit=unit, digest=digest)])


async def test_a_whole_vector_becomes_an_event(run: Run, parser: ContributionParser) -> None:
    assert parser.parse(contribution(run)) is None
    arrived = await event(run)
    assert isinstance(arrived, Arrived)
    assert (arrived.learner, arrived.row, arrived.batch_digest) == (ROW, ROW, b"d")
    assert arrived.compute_s == 0.5
    assert arrived.coded.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert run.reception.bytes_received == {"coded": 8 * SIZE}


async def test_header_and_chunks_may_come_apart(run: Run, parser: ContributionParser) -> None:
    whole = contribution(run)
    assert parser.parse(pb.LearnerMessage(coded=whole.coded)) is None
    assert run.reception.idle
    assert parser.parse(pb.LearnerMessage(chunks=whole.chunks)) is None
    assert isinstance(await event(run), Arrived)


async def test_reports_come_before_the_vector_of_the_same_message(
    run: Run, parser: ContributionParser
) -> None:
    message = contribution(run)
    message.units.extend(report(run, unit=1).units)
    parser.parse(message)
    first, second = await event(run), await event(run)
    assert isinstance(first, Reported)
    assert (first.learner, first.digests) == (ROW, {1: bytes(16)})
    assert isinstance(second, Arrived)
    assert run.reception.bytes_received["digests"] == 16


STALE: dict[str, Callable[[Ids], None]] = {
    "run": lambda ids: setattr(ids, "run", "other"),
    "term": lambda ids: setattr(ids, "term", ids.term - 1),
    "epoch": lambda ids: setattr(ids, "epoch", ids.epoch + 1),
    "iteration": lambda ids: setattr(ids, "iteration", ids.iteration - 1),
    "attempt": lambda ids: setattr(ids, "attempt", ids.attempt + 1),
}


@pytest.mark.parametrize("name", STALE)
async def test_stale_ids_are_refused_and_their_chunks_dropped(
    run: Run, parser: ContributionParser, name: str
) -> None:
    message = contribution(run)
    STALE[name](message.coded.ids)
    refused = parser.parse(message)
    assert refused is not None
    assert refused.reason == pb.REFUSAL_STALE
    assert refused.ids == message.coded.ids
    assert run.reception.idle
    assert not run.reception.bytes_received


@pytest.mark.parametrize("name", STALE)
async def test_stale_reports_are_dropped(run: Run, parser: ContributionParser, name: str) -> None:
    message = report(run)
    STALE[name](message.units[0].ids)
    assert parser.parse(message) is None
    assert run.reception.idle


@pytest.mark.parametrize("name", ["compute_s", "started_s", "sent_s"])
@pytest.mark.parametrize("value", [-0.5, 1e300, math.inf, math.nan])
async def test_what_is_no_duration_is_refused_by_name(
    run: Run, parser: ContributionParser, name: str, value: float
) -> None:
    message = contribution(run)
    setattr(message.coded, name, value)
    with pytest.raises(InvalidContribution, match=rf"coded\.{name} is not a duration"):
        parser.parse(message)
    assert run.reception.idle


async def test_a_minibatch_of_more_bytes_than_a_status_may_say_is_refused(
    run: Run, parser: ContributionParser
) -> None:
    message = contribution(run)
    message.coded.batch_bytes = 2**63
    with pytest.raises(InvalidContribution, match=r"coded\.batch_bytes is 9223372036854775808"):
        parser.parse(message)
    assert run.reception.idle


async def test_an_earlier_attempt_of_the_round_is_current(
    run: Run, parser: ContributionParser
) -> None:
    message = contribution(run)
    opened(run).attempt += 1
    assert parser.parse(message) is None
    assert not run.reception.idle


async def test_between_rounds_everything_is_stale(run: Run, parser: ContributionParser) -> None:
    message = contribution(run)
    run.reception.close()
    refused = parser.parse(message)
    assert refused is not None
    assert refused.reason == pb.REFUSAL_STALE


async def test_what_was_queued_when_a_round_was_decided_counts_in_no_later_one(
    run: Run, parser: ContributionParser
) -> None:
    parser.parse(contribution(run))
    assignment = opened(run).assignment
    run.reception.close()
    later = Round(6, assignment.code, decoding=ExactDecoding(), target_sizes=[SIZE] * UNITS)
    run.reception.open(OpenRound(later, assignment, members=run.roster))
    assert await run.reception.next_event(deadline=0.0) is None


async def test_a_row_that_was_received_is_refused_as_duplicate(
    run: Run, parser: ContributionParser
) -> None:
    opened(run).round.offer(learner=ROW, row=ROW)
    refused = parser.parse(contribution(run))
    assert refused is not None
    assert refused.reason == pb.REFUSAL_DUPLICATE
    assert refused.message == f"row {ROW} was already received"
    assert run.reception.idle


@pytest.mark.parametrize(("unit", "digest"), [(UNITS, bytes(16)), (0, bytes(15)), (0, b"")])
async def test_a_report_of_no_unit_or_no_digest_is_invalid(
    run: Run, parser: ContributionParser, unit: int, digest: bytes
) -> None:
    with pytest.raises(InvalidContribution, match=f"unit {unit} of 3, digest of {len(digest)}"):
        parser.parse(report(run, unit=unit, digest=digest))
    assert run.reception.idle


async def test_a_report_of_another_learners_unit_is_invalid(
    run: Run, parser: ContributionParser
) -> None:
    [other] = np.flatnonzero(opened(run).assignment.code.matrix[ROW] == 0.0)
    with pytest.raises(InvalidContribution, match=f"unit {other} is not of this learner's row"):
        parser.parse(report(run, unit=int(other)))
    assert run.reception.idle


@pytest.mark.parametrize("row", [ROW + 1, 99])
async def test_a_row_of_another_learner_is_invalid(
    run: Run, parser: ContributionParser, row: int
) -> None:
    with pytest.raises(InvalidContribution, match=f"coded.row {row} was not assigned"):
        parser.parse(contribution(run, row=row))


@pytest.mark.parametrize(
    ("name", "value"), [("array", 0), ("offset", 8), ("total", 8), ("crc32c", 1), ("data", b"")]
)
async def test_a_wrong_chunk_is_invalid_and_named(
    run: Run, parser: ContributionParser, name: str, value: int | bytes
) -> None:
    message = contribution(run)
    setattr(message.chunks[0], name, value)
    with pytest.raises(InvalidContribution, match=f"chunk.{name}"):
        parser.parse(message)
    assert run.reception.idle


async def test_chunks_before_their_header_are_invalid(run: Run, parser: ContributionParser) -> None:
    with pytest.raises(InvalidContribution, match="before their Coded header"):
        parser.parse(pb.LearnerMessage(chunks=contribution(run).chunks))


@pytest.mark.parametrize(
    "message", [pb.LearnerMessage(hello=pb.Hello()), pb.LearnerMessage(ready=pb.Ready())]
)
async def test_a_second_introduction_is_invalid(
    parser: ContributionParser, message: pb.LearnerMessage
) -> None:
    with pytest.raises(InvalidContribution, match="it opens the stream"):
        parser.parse(message)


async def test_a_vector_in_shared_memory_becomes_an_event(
    run: Run, parser: ContributionParser
) -> None:
    block = WrittenBlock()
    run.roster.members[ROW].vectors = ReadBlock(block.location)
    assert parser.parse(shared(run, block)) is None
    arrived = await event(run)
    assert isinstance(arrived, Arrived)
    assert arrived.coded.tolist() == list(range(SIZE))
    assert not run.reception.bytes_received


@pytest.mark.parametrize("streamed", [True, False])
async def test_the_vector_of_a_lone_unit_is_in_single_precision(
    run: Run, parser: ContributionParser, *, streamed: bool
) -> None:
    open_round(run, name="uncoded")
    block = WrittenBlock()
    run.roster.members[ROW].vectors = ReadBlock(block.location)
    message = (
        contribution(run, precision=np.float32)
        if streamed
        else shared(run, block, precision=np.float32)
    )
    assert parser.parse(message) is None
    arrived = await event(run)
    assert isinstance(arrived, Arrived)
    assert arrived.coded.dtype == np.float32
    assert arrived.coded.tolist() == list(range(SIZE))
    assert run.reception.bytes_received == ({"coded": 4 * SIZE} if streamed else {})


async def test_an_extra_row_is_in_single_precision(run: Run, parser: ContributionParser) -> None:
    row = opened(run).round.add(0)
    opened(run).assignment.add_extra_row(row, 0, run.roster.members[ROW])
    assert parser.parse(contribution(run, row=row, precision=np.float32)) is None
    assert isinstance(await event(run), Arrived)


@pytest.mark.parametrize(("name", "precision"), [("uncoded", np.float64), ("cyclic", np.float32)])
async def test_a_vector_in_the_other_precision_is_invalid(
    run: Run, parser: ContributionParser, name: str, precision: DTypeLike
) -> None:
    open_round(run, name=name)
    with pytest.raises(InvalidContribution, match=r"chunk.total is (32, expected 16|16, exp.* 32)"):
        parser.parse(contribution(run, precision=precision))
    assert run.reception.idle


@pytest.mark.parametrize("opened_block", [True, False])
async def test_a_vector_that_is_torn_in_shared_memory_is_asked_for_by_stream(
    run: Run, parser: ContributionParser, *, opened_block: bool
) -> None:
    block, member = WrittenBlock(), run.roster.members[ROW]
    member.vectors = ReadBlock(block.location) if opened_block else None
    refused = parser.parse(shared(run, block, damage=1))
    assert refused is not None
    assert refused.reason == pb.REFUSAL_UNREADABLE
    assert run.reception.idle
    assert member.vectors is None  # later ones are sent, too
    assert parser.parse(contribution(run)) is None
    assert isinstance(await event(run), Arrived)


async def test_a_stale_vector_in_shared_memory_is_not_read(
    run: Run, parser: ContributionParser
) -> None:
    block, member = WrittenBlock(), run.roster.members[ROW]
    member.vectors = ReadBlock(block.location)
    message = shared(run, block, damage=1)
    message.coded.ids.iteration -= 1
    refused = parser.parse(message)
    assert refused is not None
    assert refused.reason == pb.REFUSAL_STALE
    assert member.vectors is not None
