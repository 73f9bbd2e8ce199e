"""The sidecar reads vectors, splits their messages, and flips a byte."""

import google_crc32c
import numpy as np
import pytest

from fullrank.config.faults import CorruptFault
from fullrank.net.codec import CHUNK_BYTES, LEARNER_CHUNKS, encode_chunks
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_straggler.gate import corrupt, read_controller, read_learner, split_units

CODED = pb.Coded(ids=Ids(run="r", iteration=7), row=3, batch_digest=bytes(16), compute_s=0.5)
UNIT = pb.UnitDone(ids=Ids(run="r", iteration=7), unit=2, digest=bytes(range(16)))


@pytest.mark.parametrize("units", [0, 3])
@pytest.mark.parametrize("chunks", [0, 3])
def test_a_split_message_is_the_message_in_two(units: int, chunks: int) -> None:
    vector = pb.LearnerMessage(coded=CODED, chunks=[Chunk(data=b"x")] * chunks)
    done = pb.LearnerMessage(units=[UNIT] * units)
    message = read_learner(vector.SerializeToString() + done.SerializeToString())
    assert message is not None
    assert split_units(message) == done
    assert message == vector


def test_a_message_without_a_vector_is_none_of_its_business() -> None:
    assert read_learner(pb.LearnerMessage(units=[UNIT]).SerializeToString()) is None
    assert read_learner(b"") is None


def test_bytes_that_are_no_message_are_none_of_its_business() -> None:
    cut_short = pb.LearnerMessage(coded=CODED).SerializeToString()[:-1]
    assert read_learner(cut_short) is None
    assert read_controller(cut_short) is None


@pytest.mark.parametrize("byte", [0, 7, CHUNK_BYTES - 1, CHUNK_BYTES, 8 * 80_000 - 1])
@pytest.mark.parametrize("mend", [False, True])
def test_one_byte_of_the_vector_is_flipped(byte: int, mend: bool) -> None:
    vector = np.arange(80_000.0)
    fault = CorruptFault(byte=byte + 3 * vector.nbytes, mend_checksum=mend)
    received, sound = bytearray(), []
    for message in map(bytes, encode_chunks(vector, array_id=0, field=LEARNER_CHUNKS)):
        said = read_learner(message)
        assert said is not None
        [chunk] = said.chunks
        assert corrupt(chunk, fault) is (said.SerializeToString() != message)
        received += chunk.data
        sound.append(chunk.crc32c == google_crc32c.value(chunk.data))
    expected = bytearray(vector.tobytes())
    expected[byte] ^= 0xFF
    assert received == expected
    assert sound.count(False) == (0 if mend else 1)
