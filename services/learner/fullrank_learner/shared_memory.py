"""Memory that a learner shares with the controller of its host."""

from fullrank.algorithms.roles import Parameters
from fullrank.common.errors import NotFound
from fullrank.common.types import EncodedVector
from fullrank.host.shared_memory import START, ReadBlock, WrittenBlock, written_block
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import SharedBlock

ENTRY_BYTES = 8
"""Room for an entry of a vector, the size of a float64."""


class SectionsDamaged(Exception):
    """The sections in the controller's block do not match their checksums."""


class SharedMemory:
    """The controller's block, which holds sections, and the learner's own, which holds vectors.

    Args:
        sections: The controller's block.
        vectors: This learner's block.
    """

    def __init__(self, sections: ReadBlock, vectors: WrittenBlock) -> None:
        self._sections, self._vectors = sections, vectors
        self._turn = self._rows = 0

    @classmethod
    def with_controller(cls, location: SharedBlock) -> "SharedMemory":
        """Open the controller's block.

        Raises:
            NotFound: The controller is on another host, or a system has no files in memory.
        """
        sections, vectors = ReadBlock(location), written_block()
        if vectors is None:
            raise NotFound("this system has no files in memory")
        return cls(sections, vectors)

    @property
    def location(self) -> SharedBlock:
        """The place and the id of the learner's block."""
        return self._vectors.location

    def read(self, assignment: pb.Assignment, parameters: Parameters) -> None:
        """Copy the sections of an assignment into the parameters.

        Raises:
            SectionsDamaged: They were overwritten or are damaged.
        """
        places = zip(assignment.sections, assignment.offsets, assignment.crc32c, strict=True)
        for section, offset, checksum in places:
            if not self._sections.read(offset, parameters.view(section), checksum=checksum):
                raise SectionsDamaged
        parameters.written()

    def begin(self) -> None:
        """Write the vectors of an assignment from now on.

        They do not overwrite those of the assignment before, which the controller may be reading.
        """
        self._turn, self._rows = 1 - self._turn, 0

    def write(self, coded: EncodedVector) -> tuple[int, int]:
        """Write the next vector of the assignment; returns its offset and checksum."""
        offset = START + (2 * self._rows + self._turn) * ENTRY_BYTES * len(coded)
        self._rows += 1
        return offset, self._vectors.write(offset, coded)
