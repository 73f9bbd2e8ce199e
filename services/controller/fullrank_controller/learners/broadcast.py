"""An iteration's assignments as bytes: every section encoded once, shared by all streams."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fullrank.algorithms import Algorithm
from fullrank.codes import support
from fullrank.common.types import Matrix, UnitIndex, Vector
from fullrank.planning.costs import sections_of
from fullrank.replay import Sample
from fullrank.rpc.codec import (
    CONTROLLER_CHUNKS,
    JOINED_BYTES,
    Field,
    bundle,
    encode_chunks,
    joined,
)
from fullrank.rpc.messages import sample_message
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.membership.roster import Parcel


class Broadcast:
    """Encodes what the holders of rows get.

    What every row needs is encoded once; where it is large it travels in messages that are the same
    objects for all streams, where it is small it is joined to the rest to save a write.

    Args:
        algorithm: Holds the parameters that are broadcast; they must not change meanwhile.
        matrix: C; its supports decide who needs what.
    """

    def __init__(self, algorithm: Algorithm, matrix: Matrix) -> None:
        self._algorithm = algorithm
        needed = [sections_of(support(row), algorithm.needs) for row in matrix]
        self._needed = sorted(set().union(*needed))
        self._common = sorted(set.intersection(*map(set, needed)))
        self._own = [[each for each in own if each not in self._common] for own in needed]
        self._assignments = [self._assignment(*each) for each in enumerate(matrix)]
        self.version: int | None = None
        """Of the parameters that are encoded; None before the first."""
        self._encoded: dict[int, list[Field]] = {}
        self._shared: list[bytes] = []

    def _assignment(self, row: int, coefficients: Vector) -> pb.Assignment:
        """What stays the same from round to round."""
        units = support(coefficients)
        return pb.Assignment(
            rows=[pb.Row(row=row, units=units, coefficients=coefficients[units])],
            sections=[*self._own[row], *self._common],
        )

    def refresh(self, version: int) -> None:
        """Encode the parameters as they are now, which are those of ``version``.

        It reads them all, for a checksum: with many it takes a while, which need not be the loop's.
        """
        self._encoded = {
            section: list(
                encode_chunks(
                    self._algorithm.view(section), array_id=section, field=CONTROLLER_CHUNKS
                )
            )
            for section in self._needed
        }
        self._shared = list(bundle(self._fields(self._common)))
        self.version = version

    def _fields(self, sections: Iterable[int]) -> Iterator[Field]:
        for section in sections:
            yield from self._encoded[section]

    def parcel(self, row: int, *, ids: Ids, sample: Sample, deadline_s: float) -> Parcel:
        """Assignment of one row of C, the sections only it needs, then the common ones."""
        assignment = self._assignments[row]
        _complete(assignment, ids=ids, sample=sample, deadline_s=deadline_s)
        return self._packed(assignment, self._own[row], shared=self._shared)

    def parcel_of_units(
        self, rows: Mapping[int, UnitIndex], *, ids: Ids, sample: Sample, deadline_s: float
    ) -> Parcel:
        """Assignment of rows that were added, each a unit alone, and all sections they need."""
        sections = sections_of(sorted(set(rows.values())), self._algorithm.needs)
        assignment = pb.Assignment(
            rows=[pb.Row(row=row, units=[unit], coefficients=[1.0]) for row, unit in rows.items()],
            sections=sections,
        )
        _complete(assignment, ids=ids, sample=sample, deadline_s=deadline_s)
        return self._packed(assignment, sections, shared=())

    def _packed(
        self, assignment: pb.Assignment, own: Sequence[int], *, shared: Sequence[bytes]
    ) -> Parcel:
        head = pb.ControllerMessage(assignment=assignment).SerializeToString()
        fields = [Field(head), *self._fields(own)]
        if sum(field.size for field in fields) + sum(map(len, shared)) <= JOINED_BYTES:
            messages = [joined([*fields, *map(Field, shared)])]
        else:
            messages = [*bundle(fields), *shared]
        return [("parameters", message) for message in messages]


def _complete(assignment: pb.Assignment, *, ids: Ids, sample: Sample, deadline_s: float) -> None:
    """Fill in what changes from round to round."""
    assignment.ids.CopyFrom(ids)
    assignment.sample.CopyFrom(sample_message(sample))
    assignment.version, assignment.deadline_s = ids.iteration, deadline_s
