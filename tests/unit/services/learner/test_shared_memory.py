"""Vectors in a learner's block, in either precision."""

import numpy as np
import pytest

from fullrank.common.types import EncodedVector
from fullrank.host.shared_memory import ReadBlock, WrittenBlock
from fullrank_learner.contributor import SharedMemory

P = 6


@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f4", "f8"), ("f8", "f4"), ("f8", "f8")])
def test_vectors_of_an_assignment_and_of_the_one_before_do_not_overlap(
    dtypes: tuple[str, str],
) -> None:
    sections, vectors = WrittenBlock(), WrittenBlock()
    memory = SharedMemory(ReadBlock(sections.location), vectors)
    written: list[tuple[int, int, EncodedVector]] = []
    for assignment in range(2):
        memory.begin()
        for row, dtype in enumerate(dtypes):
            coded = np.full(P, 10 * assignment + row, dtype)
            written.append((*memory.write(coded), coded))
    block = ReadBlock(memory.location)
    for offset, checksum, coded in written:
        copy = np.empty_like(coded)
        assert block.read(offset, copy, checksum=checksum)
        assert copy.tolist() == coded.tolist()
