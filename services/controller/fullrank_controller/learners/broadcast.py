"""Assignments as bytes: each section is encoded once and shared by all streams."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fullrank.algorithms.base import Algorithm, Parameters, Problem
from fullrank.codes import support
from fullrank.common.types import Matrix, UnitIndex
from fullrank.planning.costs import sections_of
from fullrank.replay.samplers import Sample
from fullrank.rpc.codec import (
    CONTROLLER_CHUNKS,
    JOINED_BYTES,
    EncodedField,
    bundle,
    encode_chunks,
    joined,
)
from fullrank.rpc.messages import sample_message
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.learners.outbox import EncodedAssignment
from fullrank_controller.membership.row_assignment import RowAssignment


class AssignmentEncoder:
    """Encodes the assignments of one epoch.

    Sections that every learner needs are encoded once. Large ones travel in messages that are the
    same objects for all streams; small ones are joined to the rest, which saves a write.

    Args:
        problem: Says which sections each unit reads.
        parameters: Broadcast; they must not change during ``refresh``.
        blocks: Rows of C by share, shape (shares, k, M); the units of a share decide which
            sections it needs.

    Attributes:
        version: Version of the encoded parameters; None before the first.
    """

    def __init__(self, problem: Problem, parameters: Parameters, blocks: Matrix) -> None:
        self.version: int | None = None
        self._problem, self._parameters = problem, parameters
        needed = [sections_of(support(rows.any(axis=0)), problem.needs) for rows in blocks]
        self._needed = sorted(set().union(*needed))
        self._common = sorted(set.intersection(*map(set, needed)))
        self._private = [[id_ for id_ in ids if id_ not in self._common] for ids in needed]
        self._assignments = [
            self._constant_part(share, coefficients) for share, coefficients in enumerate(blocks)
        ]
        self._encoded: dict[int, list[EncodedField]] = {}
        self._shared: list[bytes] = []

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

    def refresh(self, version: int) -> None:
        """Encode the current parameters, which are those of ``version``.

        Reading all of them for a checksum takes long when they are many: call it on a thread.
        """
        self._encoded = {
            section: list(
                encode_chunks(
                    self._parameters.view(section), array_id=section, field=CONTROLLER_CHUNKS
                )
            )
            for section in self._needed
        }
        self._shared = list(bundle(self._fields(self._common)))
        self.version = version

    def _fields(self, sections: Iterable[int]) -> Iterator[EncodedField]:
        for section in sections:
            yield from self._encoded[section]

    def encode(
        self, share: int, *, ids: Ids, sample: Sample, deadline_s: float
    ) -> EncodedAssignment:
        """Encode the rows of a share, the sections that only it needs, then the common ones."""
        assignment = self._assignments[share]
        _complete(assignment, ids=ids, sample=sample, deadline_s=deadline_s)
        return self._pack(assignment, self._private[share], shared=self._shared)

    def encode_units(
        self, rows: Mapping[int, UnitIndex], *, ids: Ids, sample: Sample, deadline_s: float
    ) -> EncodedAssignment:
        """Encode extra rows, each a single unit, and all sections that they need."""
        sections = sections_of(sorted(set(rows.values())), self._problem.needs)
        assignment = pb.Assignment(
            rows=[pb.Row(row=row, units=[unit], coefficients=[1.0]) for row, unit in rows.items()],
            sections=sections,
        )
        _complete(assignment, ids=ids, sample=sample, deadline_s=deadline_s)
        return self._pack(assignment, sections, shared=())

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


def _complete(assignment: pb.Assignment, *, ids: Ids, sample: Sample, deadline_s: float) -> None:
    """Set the fields that differ from round to round."""
    assignment.ids.CopyFrom(ids)
    assignment.sample.CopyFrom(sample_message(sample))
    assignment.version, assignment.deadline_s = ids.iteration, deadline_s


class Broadcaster:
    """Keeps the encoder of the current epoch up to date with the parameters.

    Args:
        algorithm: Holds the parameters.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._current: tuple[RowAssignment, AssignmentEncoder] | None = None

    async def encoder(self, assignment: RowAssignment, *, version: int) -> AssignmentEncoder:
        """The encoder of the assignment with the parameters of ``version``."""
        if self._current is None or self._current[0] is not assignment:
            encoder = AssignmentEncoder(
                self._algorithm.problem, self._algorithm.parameters, assignment.code.blocks
            )
            self._current = assignment, encoder
        await self.refresh(version)
        return self._current[1]

    async def refresh(self, version: int) -> None:
        """Encode the parameters ahead of the next round, unless they are encoded already."""
        if self._current is not None and self._current[1].version != version:
            await asyncio.to_thread(self._current[1].refresh, version)
