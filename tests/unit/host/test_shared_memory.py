"""A block is read by the process that was told of it, and only as it was written."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fullrank.common.errors import NotFound
from fullrank.host.shared_memory import ID_BYTES, START, ReadBlock, WrittenBlock
from fullrank.v1.common_pb2 import SharedBlock

VALUES = np.arange(2048.0)


@pytest.fixture
def written() -> WrittenBlock:
    return WrittenBlock()


def copy_of(block: ReadBlock, checksum: int, *, offset: int = START) -> bool:
    into = np.empty_like(VALUES)
    intact = block.read(offset, into, checksum=checksum)
    assert not intact or np.array_equal(into, VALUES)
    return intact


@pytest.mark.integration
def test_another_process_reads_what_was_written(written: WrittenBlock) -> None:
    checksum = written.write(START, VALUES)
    location = written.location
    program = (
        "import numpy as np\n"
        "from fullrank.host.shared_memory import START, ReadBlock\n"
        "from fullrank.v1.common_pb2 import SharedBlock\n"
        f"block = ReadBlock(SharedBlock(pid={location.pid}, descriptor={location.descriptor}, "
        f"id={location.id!r}))\n"
        f"into = np.empty({len(VALUES)})\n"
        f"assert block.read(START, into, checksum={checksum})\n"
        "print(into.sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert float(done.stdout) == VALUES.sum()


def test_a_copy_that_is_not_what_was_written_is_refused(written: WrittenBlock) -> None:
    checksum, block = written.write(START, VALUES), ReadBlock(written.location)
    assert copy_of(block, checksum)
    torn = VALUES.copy()
    torn[1000:] += 1.0  # a newer version that is half written
    written.write(START, torn)
    assert not copy_of(block, checksum)


@pytest.mark.parametrize("offset", [START + 8, 10**9, 2**63, 2**64 - 1])
def test_an_impossible_place_is_refused(written: WrittenBlock, offset: int) -> None:
    checksum = written.write(START, VALUES)
    assert not copy_of(ReadBlock(written.location), checksum, offset=offset)


def test_another_file_in_the_place_is_not_the_block(written: WrittenBlock, tmp_path: Path) -> None:
    with (tmp_path / "other").open("wb+", buffering=0) as other:
        other.write(bytes(ID_BYTES))
        reader, writer = os.pipe()
        for descriptor in (other.fileno(), reader, writer, 10**6):
            location = SharedBlock(pid=os.getpid(), descriptor=descriptor, id=written.location.id)
            with pytest.raises(NotFound):
                ReadBlock(location)
        os.close(reader)
        os.close(writer)


def test_a_block_is_readable_after_its_writer_is_gone() -> None:
    written = WrittenBlock()
    checksum, block, location = written.write(START, VALUES), None, written.location
    block = ReadBlock(location)
    del written
    gc.collect()
    assert copy_of(block, checksum)
    with pytest.raises(NotFound):
        ReadBlock(location)
