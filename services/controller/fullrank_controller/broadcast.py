"""An iteration's assignments as bytes: every section encoded once, shared by all streams."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from fullrank.algorithms import Algorithm
from fullrank.replay import Sample
from fullrank.rpc.clients import sample_message
from fullrank.rpc.codec import CONTROLLER_CHUNKS, bundle, encode_chunks
from fullrank.traffic import sections_of, support
from fullrank.types import Matrix
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_controller.roster import Parcel


class Broadcast:
    """Encodes what the holders of rows get.

    Sections that every row needs travel in messages that are the same objects for all streams.

    Args:
        algorithm: Holds the parameters that are broadcast; they must not change meanwhile.
        matrix: C; its supports decide who needs what.
    """

    def __init__(self, algorithm: Algorithm, matrix: Matrix) -> None:
        self._algorithm = algorithm
        self._matrix = matrix
        needed = [set(self._needs(row)) for row in range(len(matrix))]
        self._common = sorted(set.intersection(*needed))
        self._encoded = cache(self._encode)
        self._common_messages = list(
            bundle(field for section in self._common for field in self._encoded(section))
        )

    def _needs(self, row: int) -> list[int]:
        return sections_of(support(self._matrix[row]), self._algorithm.needs)

    def _encode(self, section: int) -> Sequence[bytes]:
        array = self._algorithm.view(section)
        return list(encode_chunks(array, array_id=section, field=CONTROLLER_CHUNKS))

    def parcel(self, row: int, *, ids: Ids, sample: Sample, deadline_s: float) -> Parcel:
        """Assignment of one row, the sections only it needs, then the common ones."""
        own = [section for section in self._needs(row) if section not in self._common]
        units = support(self._matrix[row])
        assignment = pb.Assignment(
            ids=ids,
            rows=[
                pb.Row(row=row, units=units, coefficients=np.take(self._matrix[row], units)),
            ],
            version=ids.iteration,
            sample=sample_message(sample),
            deadline_s=deadline_s,
            sections=[*own, *self._common],
        )
        head = pb.ControllerMessage(assignment=assignment).SerializeToString()
        own_fields = (field for section in own for field in self._encoded(section))
        parameters = [*bundle(own_fields), *self._common_messages]
        return [("assignment", head), *(("parameters", message) for message in parameters)]
