"""An assignment carries the sections that its row needs, as they were when they were encoded."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest

from fullrank.algorithms import Parameters, Problem
from fullrank.algorithms.problem import Section
from fullrank.common.types import FloatArray, UnitIndex
from fullrank.host.shared_memory import ReadBlock, WrittenBlock
from fullrank.net.codec import Assembler
from fullrank.replay.samplers import Sample
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners import broadcast as module
from fullrank_controller.learners.broadcast import AssignmentEncoder, SharedSections
from fullrank_controller.learners.outbox import EncodedAssignment

UNITS, SIZE = 3, 5
IDS = Ids(run="run", term=1, iteration=4)
SAMPLE = Sample(table="t", seed=0, iteration=4, tail=0, head=8, size=2)
MATRIX = np.array([[1.0, 0.0, 0.0], [0.0, 2.0, -1.0], [0.0, 0.0, 1.0]])


class Sections:
    """Unit i needs its own section i and the common section 3."""

    def __init__(self) -> None:
        self.parameters = np.arange(4.0 * SIZE, dtype=np.float32).reshape(4, SIZE)
        self.sections = [Section(id=id_, role="", agents=(0,), size=SIZE) for id_ in range(4)]
        self.viewed: list[int] = []

    def needs(self, unit: UnitIndex) -> Sequence[int]:
        return [unit, UNITS]

    def view(self, section: int) -> FloatArray:
        self.viewed.append(section)
        return np.asarray(self.parameters[section])


@pytest.fixture
def sections() -> Sections:
    return Sections()


@pytest.fixture
def encoder(sections: Sections) -> AssignmentEncoder:
    return AssignmentEncoder(cast(Problem, sections), cast(Parameters, sections), MATRIX[:, None])


def received(encoded: EncodedAssignment) -> tuple[pb.Assignment, dict[int, list[float]]]:
    """The assignment and its sections as a learner decodes them."""
    message = pb.ControllerMessage()
    for kind, data in encoded:
        assert kind == "parameters"
        message.MergeFromString(data)
    found, chunks = {}, iter(message.chunks)
    for section in message.assignment.sections:
        array = np.empty(SIZE, np.float32)
        assembler = Assembler(array, array_id=section)
        while not assembler.complete:
            assembler.add(next(chunks))
        found[section] = array.tolist()
    assert next(chunks, None) is None
    return message.assignment, found


def encode(encoder: AssignmentEncoder, row: int) -> EncodedAssignment:
    return encoder.encode(row, ids=IDS, sample=SAMPLE, deadline_s=3.0)


@pytest.mark.parametrize("joined_bytes", [0, 2**20])
def test_a_row_gets_what_its_units_need(
    sections: Sections,
    encoder: AssignmentEncoder,
    joined_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "JOINED_BYTES", joined_bytes)
    encoder.refresh(4)
    for row, wanted in enumerate([{0, 3}, {1, 2, 3}, {2, 3}]):
        assignment, found = received(encode(encoder, row))
        assert (assignment.ids, assignment.version, assignment.deadline_s) == (IDS, 4, 3.0)
        assert [each.row for each in assignment.rows] == [row]
        assert found == {section: sections.parameters[section].tolist() for section in wanted}


def test_a_unit_alone_gets_what_it_needs(sections: Sections, encoder: AssignmentEncoder) -> None:
    encoder.refresh(4)
    assignment, found = received(
        encoder.encode_units({7: 2}, ids=IDS, sample=SAMPLE, deadline_s=3.0)
    )
    assert [(each.row, list(each.units)) for each in assignment.rows] == [(7, [2])]
    assert found == {section: sections.parameters[section].tolist() for section in (2, 3)}


def test_every_assignment_of_a_round_carries_the_context_of_its_trace_alone(
    encoder: AssignmentEncoder,
) -> None:
    encoder.refresh(4)
    for traceparent in ("00-1-2-01", ""):
        encoder.traceparent = traceparent
        extra = encoder.encode_units({7: 2}, ids=IDS, sample=SAMPLE, deadline_s=3.0)
        for encoded in (encode(encoder, 1), extra):
            assert received(encoded)[0].traceparent == traceparent


def test_each_section_is_encoded_once_for_all_rows(
    sections: Sections, encoder: AssignmentEncoder
) -> None:
    assert encoder.version is None
    encoder.refresh(4)
    for row in range(3):
        encode(encoder, row)
    assert sorted(sections.viewed) == [0, 1, 2, 3]
    assert encoder.version == 4


def test_what_all_rows_need_travels_as_the_same_object_where_it_is_large(
    encoder: AssignmentEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "JOINED_BYTES", 0)
    encoder.refresh(4)
    messages: list[Any] = [encode(encoder, row)[-1][1] for row in range(3)]
    assert messages[0] is messages[1] is messages[2]


def test_sections_in_shared_memory_last_until_the_next_version_but_one(sections: Sections) -> None:
    problem, parameters = cast(Problem, sections), cast(Parameters, sections)
    block = WrittenBlock()
    reader = ReadBlock(block.location)
    encoder = AssignmentEncoder(
        problem, parameters, MATRIX[:, None], sections=SharedSections(problem, parameters, block)
    )

    def assigned(version: int) -> pb.Assignment:
        encoder.refresh(version, ways={True})
        encoded = encoder.encode(1, ids=IDS, sample=SAMPLE, deadline_s=3.0, shared=True)
        message = pb.ControllerMessage.FromString(encoded[0][1])
        assert (len(encoded), len(message.chunks)) == (1, 0)
        return message.assignment

    def held(assignment: pb.Assignment) -> list[list[float]] | None:
        found = []
        for offset, checksum in zip(assignment.offsets, assignment.crc32c, strict=True):
            array = np.empty(SIZE, np.float32)
            if not reader.read(offset, array, checksum=checksum):
                return None
            found.append(array.tolist())
        return found

    old, values = assigned(4), sections.parameters[[1, 2, 3]].tolist()
    assert held(old) == values
    sections.parameters += 0.5
    new = assigned(5)
    assert (held(old), held(new)) == (values, sections.parameters[[1, 2, 3]].tolist())
    sections.parameters += 0.5
    newest = assigned(6)
    assert held(old) is None
    assert held(newest) == sections.parameters[[1, 2, 3]].tolist()
    assert received(encode(encoder, 1))[1][3] == sections.parameters[3].tolist()  # to others
