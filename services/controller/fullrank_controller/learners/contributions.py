"""The parser of one stream's contributions."""

from collections.abc import Iterable, Sequence

import numpy as np

from fullrank.common.deadlines import is_duration
from fullrank.common.errors import InvalidContribution
from fullrank.common.types import EncodedVector
from fullrank.net.codec import Assembler
from fullrank.run.round_orders import Arrived, SectionsUnreadable
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member
from fullrank_controller.rounds.reception import Reception


class ContributionParser:
    """Validates the messages of one learner and assembles its coded vectors.

    A vector is assembled only after the reception has admitted its header.

    Args:
        identity: The run; it fixes the number of units and the length of a vector.
        reception: Admits headers, and receives digests and complete vectors.
        member: The stream's learner.
    """

    def __init__(self, identity: RunIdentity, reception: Reception, member: Member) -> None:
        self._identity, self._reception, self._member = identity, reception, member
        self._learner = member.learner
        self._header: pb.Coded | None = None
        self._coded: EncodedVector = np.empty(0)
        self._assembler: Assembler | None = None

    def parse(self, message: pb.LearnerMessage) -> pb.Refused | None:
        """Pass on the contributions that the message completes; a refusal if one is stale.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        refused = None
        self._report(message.units)
        kind = message.WhichOneof("message")
        if kind == "coded":
            refused = self._announce(message.coded)
        elif kind == "unreadable":
            unreadable = SectionsUnreadable(self._learner)
            self._reception.notify(unreadable, message.unreadable.ids)
        elif kind is not None:
            raise InvalidContribution(f"{kind} was not expected here; it opens the stream")
        self._fill(message.chunks)
        return refused

    @property
    def begun(self) -> Ids | None:
        """Ids of an incomplete vector, or None."""
        return self._header.ids if self._header and self._assembler else None

    def _report(self, reports: Sequence[pb.UnitDone]) -> None:
        expected = self._identity.report_bytes
        for done in reports:
            if done.unit >= self._identity.units or len(done.digest) != expected:
                raise InvalidContribution(
                    f"units: unit {done.unit} of {self._identity.units}, digest of "
                    f"{len(done.digest)} bytes, expected {expected}"
                )
        self._reception.report(self._learner, reports)

    def _announce(self, header: pb.Coded) -> pb.Refused | None:
        self._header, self._assembler = header, None
        refused = self._reception.admit(header.ids, learner=self._learner, row=header.row)
        if refused is None:
            for name in ("compute_s", "started_s", "sent_s"):
                if not is_duration(getattr(header, name)):
                    raise InvalidContribution(f"coded.{name} is not a duration")
            length = self._identity.problem.vector_size
            if header.offset and header.float32:
                self._coded = np.empty(length, np.float32)
            else:
                self._coded = np.empty(length)
            if header.offset:
                return self._read(header)
            self._assembler = Assembler(self._coded, array_id=header.row)
        return refused

    def _read(self, header: pb.Coded) -> pb.Refused | None:
        """Read the vector in the learner's block; a refusal if it is not whole."""
        block = self._member.vectors
        if block is not None and block.read(header.offset, self._coded, checksum=header.crc32c):
            self._finish(header)
            return None
        self._member.vectors = None
        text = f"row {header.row} does not match its checksum in the learner's memory"
        return pb.Refused(ids=header.ids, reason=pb.REFUSAL_UNREADABLE, message=text)

    def _fill(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            header = self._header
            if header is None:
                raise InvalidContribution("chunks came before their Coded header")
            if self._assembler is None:  # the header was refused: drop its chunks
                continue
            self._assembler.add(chunk)
            if self._assembler.complete:
                self._finish(header)

    def _finish(self, header: pb.Coded) -> None:
        self._assembler = None
        self._reception.arrive(
            header.ids,
            Arrived(
                learner=self._learner,
                row=header.row,
                coded=self._coded,
                batch_digest=header.batch_digest,
                batch_bytes=header.batch_bytes,
                items=tuple(header.items),
                compute_s=header.compute_s,
                started_s=header.started_s,
                sent_s=header.sent_s,
            ),
            streamed=not header.offset,
        )
