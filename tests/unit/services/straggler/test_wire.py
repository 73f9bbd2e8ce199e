"""The sidecar reads only the needed fields of encoded messages and copies nothing else."""

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.config import CorruptFault
from fullrank.rpc.codec import CHUNK_BYTES, LEARNER_CHUNKS, encode_chunks
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_straggler.wire import MALFORMED, corrupted, fields, read_controller, read_learner

CODED = pb.Coded(ids=Ids(run="r", iteration=7), row=3, batch_digest=bytes(16), compute_s=0.5)
UNIT = pb.UnitDone(ids=Ids(run="r", iteration=7), unit=2, digest=bytes(range(16)))


@given(
    st.lists(st.builds(pb.UnitDone, unit=st.integers(0, 2**32 - 1), digest=st.binary())),
    st.lists(
        st.builds(
            Chunk,
            array=st.integers(0, 2**32 - 1),
            offset=st.integers(0, 2**64 - 1),
            total=st.integers(0, 2**64 - 1),
            crc32c=st.integers(0, 2**32 - 1),
            data=st.binary(max_size=300),
        ),
        min_size=1,
    ),
)
def test_the_scan_finds_what_protobuf_decodes(
    units: list[pb.UnitDone], chunks: list[Chunk]
) -> None:
    message = pb.LearnerMessage(coded=CODED, units=units, chunks=chunks).SerializeToString()
    parts = read_learner(message)
    assert parts is not None
    assert parts.coded == CODED
    assert [(head.offset, head.total) for head in parts.chunks] == [
        (chunk.offset, chunk.total) for chunk in chunks
    ]
    assert [message[head.data : head.end] for head in parts.chunks] == [
        chunk.data for chunk in chunks
    ]


@given(st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_a_split_message_is_the_message_in_two(units: int, chunks: int, units_first: bool) -> None:
    said = pb.LearnerMessage(coded=CODED).SerializeToString()
    done = pb.LearnerMessage(units=[UNIT] * units).SerializeToString()
    pieces = pb.LearnerMessage(chunks=[Chunk(data=b"x")] * chunks).SerializeToString()
    message = (done + said if units_first else said + done) + pieces
    parts = read_learner(message)
    assert parts is not None
    assert parts.split(message) == (done, said + pieces)


def test_a_message_without_a_vector_is_none_of_its_business() -> None:
    assert read_learner(pb.LearnerMessage(units=[UNIT]).SerializeToString()) is None
    assert read_learner(b"") is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    try:
        read_learner(message)
        read_controller(message)
    except MALFORMED:
        return
    assert sum(field.end - field.start for field in fields(message, 0, len(message))) == len(
        message
    )


def test_what_the_controller_says_is_read_without_its_chunks() -> None:
    assignment = pb.Assignment(ids=Ids(iteration=4), sections=[1, 2])
    message = pb.ControllerMessage(assignment=assignment, chunks=[Chunk(data=bytes(1000))])
    said = read_controller(message.SerializeToString())
    assert said == pb.ControllerMessage(assignment=assignment)


@pytest.mark.parametrize("byte", [0, 7, CHUNK_BYTES - 1, CHUNK_BYTES, 8 * 80_000 - 1])
@pytest.mark.parametrize("mend", [False, True])
def test_one_byte_of_the_vector_is_flipped(byte: int, mend: bool) -> None:
    vector = np.arange(80_000.0)
    fault = CorruptFault(byte=byte + 3 * vector.nbytes, mend_checksum=mend)
    received, sound = bytearray(), []
    for message in map(bytes, encode_chunks(vector, array_id=0, field=LEARNER_CHUNKS)):
        parts = read_learner(message)
        assert parts is not None
        damaged = corrupted(message, parts.chunks[0], fault)
        [chunk] = pb.LearnerMessage.FromString(damaged).chunks
        received += chunk.data
        sound.append(chunk.crc32c == google_crc32c.value(chunk.data))
    expected = bytearray(vector.tobytes())
    expected[byte] ^= 0xFF
    assert received == expected
    assert sound.count(False) == (0 if mend else 1)
