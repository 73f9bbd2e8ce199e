"""Assignments as bytes: each section is encoded once and shared by all streams.

Learners of this host read the sections in the controller's block, where the two newest versions of
all sections lie: a learner that is told of a version reads it before the next but one overwrites
it, or its assignment has been replaced.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from fullrank.algorithms.problem import Problem
from fullrank.algorithms.roles import Algorithm, Parameters
from fullrank.codes import support
from fullrank.common.types import Matrix, UnitIndex
from fullrank.host.shared_memory import START, WrittenBlock
from fullrank.net.codec import (
    CONTROLLER_CHUNKS,
    JOINED_BYTES,
    EncodedField,
    bundle,
    encode_chunks,
    joined,
)
from fullrank.net.messages import sample_message
from fullrank.planning.costs import sections_of
from fullrank.replay.samplers import Sample
from fullrank.run.assignment import RowAssignment
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners.outbox import EncodedAssignment
from fullrank_controller.membership.member import Member
from fullrank_controller.membership.roster import Roster

EncodeAssignment: TypeAlias = Callable[..., EncodedAssignment]
"""Encodes an assignment: with the sections or, ``shared``, their places in the own block."""


class SharedSections:
    """All sections in the controller's block, in two versions.

    Args:
        problem: The sections and their sizes.
        parameters: They must not change during ``publish``.
        block: The block, which this object alone writes.
    """

    def __init__(self, problem: Problem, parameters: Parameters, block: WrittenBlock) -> None:
        self._parameters, self._block = parameters, block
        sizes = (4 * section.size for section in problem.sections)
        *starts, self._bytes = accumulate(sizes, initial=0)
        self._starts = {
            section.id: start for section, start in zip(problem.sections, starts, strict=True)
        }
        self._version: int | None = None
        self._offsets: dict[int, int] = {}
        self._checksums: dict[int, int] = {}

    def publish(self, version: int) -> None:
        """Write the current parameters over the version before the last, unless that was done."""
        if self._version != version:
            self._version, first = version, START + version % 2 * self._bytes
            self._offsets = {section: first + start for section, start in self._starts.items()}
            self._checksums = {
                section: self._block.write(offset, self._parameters.view(section))
                for section, offset in self._offsets.items()
            }

    def refer(self, assignment: pb.Assignment) -> None:
        """Set the places and checksums of the assignment's sections."""
        assignment.offsets.extend(map(self._offsets.__getitem__, assignment.sections))
        assignment.crc32c.extend(map(self._checksums.__getitem__, assignment.sections))


class AssignmentEncoder:
    """Encodes the assignments of one epoch.

    Sections that every learner needs are encoded once. Large ones travel in messages that are the
    same objects for all streams; small ones are joined to the rest, which saves a write.

    Args:
        problem: Says which sections each unit reads.
        parameters: Broadcast; they must not change during ``refresh``.
        blocks: Rows of C by share, shape (shares, k, M); the units of a share decide which
            sections it needs.
        sections: Sections in shared memory; None: every learner is sent them.

    Attributes:
        version: Version of the encoded parameters; None before the first.
        traceparent: Trace context of the round, which assignments carry.
    """

    def __init__(
        self,
        problem: Problem,
        parameters: Parameters,
        blocks: Matrix,
        *,
        sections: SharedSections | None = None,
    ) -> None:
        self.version: int | None = None
        self.traceparent = ""
        self._problem, self._parameters, self._sections = problem, parameters, sections
        needed = [sections_of(support(rows.any(axis=0)), problem.needs) for rows in blocks]
        self._needed = sorted(set().union(*needed))
        self._common = sorted(set.intersection(*map(set, needed)))
        self._private = [[id_ for id_ in ids if id_ not in self._common] for ids in needed]
        self._assignments = [
            self._constant_part(share, coefficients) for share, coefficients in enumerate(blocks)
        ]
        self._encoded: dict[int, list[EncodedField]] = {}
        self._common_messages: list[bytes] | None = None

    def _constant_part(self, share: int, block: Matrix) -> pb.Assignment:
        """The fields that are equal in all rounds of the epoch."""
        rows = enumerate(block, start=share * len(block))
        return pb.Assignment(
            rows=[
                pb.Row(row=row, units=units, coefficients=coefficients[units])
                for row, coefficients in rows
                if (units := support(coefficients))
            ],
            sections=[*self._private[share], *self._common],
        )

    def refresh(self, version: int, *, ways: Collection[bool] = (False,)) -> None:
        """Encode the current parameters, which are those of ``version``.

        Reading all of them for a checksum takes long when they are many: call it on a thread.

        Args:
            version: Version of the parameters.
            ways: True for learners that share memory, False for those that are sent sections.
        """
        if self.version != version:
            self._encoded, self._common_messages, self.version = {}, None, version
        if True in ways and self._sections is not None:
            self._sections.publish(version)
        if False in ways:
            for section in self._needed:
                self._chunks_of(section)
            self._common_bundle()

    def _chunks_of(self, section: int) -> list[EncodedField]:
        """The chunks of a section, encoded once per version."""
        if section not in self._encoded:
            view = self._parameters.view(section)
            self._encoded[section] = list(
                encode_chunks(view, array_id=section, field=CONTROLLER_CHUNKS)
            )
        return self._encoded[section]

    def _common_bundle(self) -> list[bytes]:
        """Messages with the common sections, encoded once per version."""
        if self._common_messages is None:
            self._common_messages = list(bundle(self._fields(self._common)))
        return self._common_messages

    def _fields(self, sections: Iterable[int]) -> Iterator[EncodedField]:
        for section in sections:
            yield from self._chunks_of(section)

    def encode(
        self, share: int, *, ids: Ids, sample: Sample, deadline_s: float, shared: bool = False
    ) -> EncodedAssignment:
        """Encode the rows of a share, the sections that only it needs, then the common ones."""
        assignment = self._assignments[share]
        self._complete(assignment, ids=ids, sample=sample, deadline_s=deadline_s)
        if shared:
            return self._refer(assignment)
        return self._pack(assignment, self._private[share], shared=self._common_bundle())

    def _refer(self, assignment: pb.Assignment) -> EncodedAssignment:
        """Encode an assignment whose sections lie in shared memory."""
        assert self._sections is not None
        assert self.version is not None
        self._sections.publish(self.version)
        self._sections.refer(assignment)
        message = pb.ControllerMessage(assignment=assignment).SerializeToString()
        return [("parameters", message)]

    def encode_units(
        self,
        rows: Mapping[int, UnitIndex],
        *,
        ids: Ids,
        sample: Sample,
        deadline_s: float,
        shared: bool = False,
    ) -> EncodedAssignment:
        """Encode extra rows, each a single unit, and all sections that they need."""
        sections = sections_of(sorted(set(rows.values())), self._problem.needs)
        assignment = pb.Assignment(
            rows=[pb.Row(row=row, units=[unit], coefficients=[1.0]) for row, unit in rows.items()],
            sections=sections,
        )
        self._complete(assignment, ids=ids, sample=sample, deadline_s=deadline_s)
        return self._refer(assignment) if shared else self._pack(assignment, sections, shared=())

    def _pack(
        self, assignment: pb.Assignment, private: Sequence[int], *, shared: Sequence[bytes]
    ) -> EncodedAssignment:
        head = pb.ControllerMessage(assignment=assignment).SerializeToString()
        fields = [EncodedField(head), *self._fields(private)]
        if sum(field.size for field in fields) + sum(map(len, shared)) <= JOINED_BYTES:
            messages = [joined([*fields, *map(EncodedField, shared)])]
        else:
            messages = [*bundle(fields), *shared]
        return [("parameters", message) for message in messages]

    def _complete(
        self, assignment: pb.Assignment, *, ids: Ids, sample: Sample, deadline_s: float
    ) -> None:
        """Set the fields that differ from round to round."""
        assignment.ids.CopyFrom(ids)
        assignment.sample.CopyFrom(sample_message(sample))
        assignment.version, assignment.deadline_s = ids.iteration, deadline_s
        assignment.traceparent = self.traceparent
        del assignment.offsets[:], assignment.crc32c[:]


class Broadcaster:
    """Keeps the encoder of the current epoch up to date with the parameters.

    Args:
        algorithm: Holds the parameters.
        roster: Tells which learners share memory.
        block: The controller's block, if it has one.
    """

    def __init__(self, algorithm: Algorithm, *, roster: Roster, block: WrittenBlock | None) -> None:
        self._algorithm, self._roster = algorithm, roster
        self._sections = None
        if block is not None:
            self._sections = SharedSections(algorithm.problem, algorithm.parameters, block)
        self._current: tuple[RowAssignment[Member], AssignmentEncoder] | None = None

    async def encoder(
        self, assignment: RowAssignment[Member], *, version: int
    ) -> AssignmentEncoder:
        """The encoder of the assignment with the parameters of ``version``."""
        if self._current is None or self._current[0] is not assignment:
            encoder = AssignmentEncoder(
                self._algorithm.problem,
                self._algorithm.parameters,
                assignment.code.blocks,
                sections=self._sections,
            )
            self._current = assignment, encoder
        await self.refresh(version)
        return self._current[1]

    async def refresh(self, version: int) -> None:
        """Encode the parameters ahead of the next round, unless they are encoded already."""
        if self._current is not None and self._current[1].version != version:
            ways = {member.vectors is not None for member in self._roster.members}
            await asyncio.to_thread(self._current[1].refresh, version, ways=ways)
