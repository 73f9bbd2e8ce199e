"""Arrays survive the wire; damaged or misplaced data are named and refused."""

import math
from collections.abc import Sequence
from itertools import pairwise

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fullrank.common.errors import InvalidContribution
from fullrank.environments.base import AgentSpec, Continuous, Discrete, MultiDiscrete
from fullrank.net import codec
from fullrank.net.codec import (
    CONTROLLER_CHUNKS,
    LEARNER_CHUNKS,
    SAMPLE_CHUNK,
    Assembler,
    EncodedField,
    bundle,
    decode_agent,
    encode_agent,
    encode_chunks,
    joined,
)
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.replay_pb2 import GetSamplesResponse
from fullrank.v1.tensor_pb2 import Chunk

arrays = hnp.arrays(
    dtype=st.sampled_from([np.float32, np.float64]),
    shape=hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=40),
)
chunk_bytes = st.integers(1, 300)


def chunks_of(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> list[Chunk]:
    fields = encode_chunks(array, array_id=7, field=LEARNER_CHUNKS)
    return [chunk for each in fields for chunk in pb.LearnerMessage.FromString(bytes(each)).chunks]


@given(array=arrays, size=chunk_bytes)
def test_an_array_survives_its_chunks(
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "CHUNK_BYTES", size)
        target = np.empty_like(array)
        assembler = Assembler(target, array_id=7)
        for chunk in chunks_of(array):
            assert not assembler.complete
            assert len(chunk.data) <= size
            assembler.add(chunk)
    assert assembler.complete
    assert target.tobytes() == array.tobytes()


@given(array=arrays, size=chunk_bytes, array_id=st.integers(0, 2**32 - 1))
def test_the_encoding_by_hand_is_the_declared_message(
    array: np.ndarray[tuple[int, ...], np.dtype[np.generic]], size: int, array_id: int
) -> None:
    data = array.tobytes()
    declared = [
        Chunk(
            array=array_id,
            offset=offset,
            total=len(data),
            crc32c=google_crc32c.value(data[offset : offset + size]),
            data=data[offset : offset + size],
        )
        for offset in range(0, len(data), size)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "CHUNK_BYTES", size)
        assert (
            joined(encode_chunks(array, array_id=array_id, field=LEARNER_CHUNKS))
            == pb.LearnerMessage(chunks=declared).SerializeToString()
        )
        assert (
            joined(encode_chunks(array, array_id=array_id, field=CONTROLLER_CHUNKS))
            == pb.ControllerMessage(chunks=declared).SerializeToString()
        )
        assert [
            GetSamplesResponse.FromString(bytes(field)).chunk
            for field in encode_chunks(array, array_id=array_id, field=SAMPLE_CHUNK)
        ] == declared


@given(lengths=st.lists(st.integers(0, 60), max_size=30), size=st.integers(1, 100))
def test_bundles_keep_order_and_size(lengths: Sequence[int], size: int) -> None:
    fields = [
        EncodedField(
            bytes([number % 256]) * (length // 2), bytes([number % 256]) * (length - length // 2)
        )
        for number, length in enumerate(lengths)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "CHUNK_BYTES", size)
        messages = list(bundle(fields))
    assert b"".join(messages) == joined(fields)
    assert all(len(message) <= max(size, *(field.size for field in fields)) for message in messages)
    assert all(len(left) + len(right) > size for left, right in pairwise(messages))


def test_a_head_and_its_fields_are_one_message() -> None:
    head = pb.LearnerMessage(coded=pb.Coded(row=3)).SerializeToString()
    [joined] = bundle(
        [EncodedField(head), *encode_chunks(np.ones(5), array_id=3, field=LEARNER_CHUNKS)]
    )
    message = pb.LearnerMessage.FromString(joined)
    assert message.coded.row == 3
    assert [chunk.array for chunk in message.chunks] == [3]


def damaged(**changes: object) -> Chunk:
    [chunk] = chunks_of(np.arange(4.0))
    for name, value in changes.items():
        setattr(chunk, name, value)
    return chunk


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (damaged(array=8), "chunk.array is 8, expected 7"),
        (damaged(offset=8), "chunk.offset is 8, expected 0"),
        (damaged(total=40), "chunk.total is 40, expected 32"),
        (damaged(crc32c=1), "chunk.crc32c does not match the data at 0"),
        (damaged(data=b""), "chunk.data of 0 bytes does not fit"),
        (damaged(data=bytes(33)), "chunk.data of 33 bytes does not fit the 32 announced"),
        (damaged(data=bytes(32)), "chunk.crc32c"),
    ],
)
def test_a_chunk_that_does_not_belong_is_named_and_changes_nothing(chunk: Chunk, said: str) -> None:
    target = np.full(4, 9.0)
    assembler = Assembler(target, array_id=7)
    with pytest.raises(InvalidContribution, match=said):
        assembler.add(chunk)
    assert target.tolist() == [9.0] * 4
    assembler.add(damaged())
    assert assembler.complete


def test_a_repeated_or_surplus_chunk_is_refused() -> None:
    assembler = Assembler(np.empty(4), array_id=7)
    assembler.add(damaged())
    with pytest.raises(InvalidContribution, match=r"chunk\.offset is 0, expected 32"):
        assembler.add(damaged())


numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
specs = st.builds(
    AgentSpec,
    name=st.text(max_size=10),
    observation_size=st.integers(4, 1000),
    always_zero=st.sets(st.integers(0, 3), max_size=3).map(lambda zeros: tuple(sorted(zeros))),
    action=st.one_of(
        st.builds(Discrete, st.integers(1, 100), st.booleans()),
        st.lists(st.integers(1, 9), min_size=1).map(lambda sizes: MultiDiscrete(tuple(sizes))),
        st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4).map(
            lambda pairs: Continuous(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
        ),
    ),
    side=st.text(max_size=10),
)


images = st.tuples(*[st.integers(1, 100)] * 3).map(
    lambda image: AgentSpec(
        name="viewer", observation_size=math.prod(image), action=Discrete(2), image=image
    )
)


@given(spec=st.one_of(specs, images))
def test_an_agent_survives_its_message(spec: AgentSpec) -> None:
    assert decode_agent(pb.Agent.FromString(encode_agent(spec).SerializeToString())) == spec
