"""An iteration's assignments as bytes: every section encoded once, shared by all streams."""

from collections.abc import Iterator, Sequence

from fullrank.algorithms import Algorithm
from fullrank.replay import Sample
from fullrank.rpc.clients import sample_message
from fullrank.rpc.codec import CONTROLLER_CHUNKS, JOINED_BYTES, bundle, encode_chunks
from fullrank.traffic import sections_of, support
from fullrank.types import Matrix
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.roster import Parcel


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
        self._matrix = matrix
        self._units = [support(row) for row in matrix]
        self._needed = [sections_of(units, algorithm.needs) for units in self._units]
        self._common = sorted(set.intersection(*map(set, self._needed)))
        self._encoded: dict[int, list[bytes]] = {}
        self._shared: list[bytes] = []

    def refresh(self) -> None:
        """Forget the last round's parameters; they are encoded anew as they are needed."""
        self._encoded.clear()
        self._shared = list(bundle(self._fields(self._common)))

    def _fields(self, sections: Sequence[int]) -> Iterator[bytes]:
        """The sections' chunks, encoded once a round."""
        for section in sections:
            if section not in self._encoded:
                view = self._algorithm.view(section)
                fields = encode_chunks(view, array_id=section, field=CONTROLLER_CHUNKS)
                self._encoded[section] = list(fields)
            yield from self._encoded[section]

    def parcel(self, row: int, *, ids: Ids, sample: Sample, deadline_s: float) -> Parcel:
        """Assignment of one row, the sections only it needs, then the common ones."""
        own = [section for section in self._needed[row] if section not in self._common]
        units = self._units[row]
        assignment = pb.Assignment(
            ids=ids,
            rows=[pb.Row(row=row, units=units, coefficients=self._matrix[row, units])],
            version=ids.iteration,
            sample=sample_message(sample),
            deadline_s=deadline_s,
            sections=[*own, *self._common],
        )
        head = pb.ControllerMessage(assignment=assignment).SerializeToString()
        fields = [head, *self._fields(own)]
        if sum(map(len, (*fields, *self._shared))) <= JOINED_BYTES:
            messages = [b"".join((*fields, *self._shared))]
        else:
            messages = [*bundle(fields), *self._shared]
        return [("parameters", message) for message in messages]
