"""One stream's contributions: well-formed, current ones become events; all else is refused."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import LearnerId, Vector
from fullrank.common.updates import DIGEST_BYTES
from fullrank.rpc.codec import Assembler
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_controller.rounds.events import Arrived, Reported
from fullrank_controller.run_state import Run


class Intake:
    """Checks what one learner sends, before any of it is stored.

    Args:
        run: What is current.
        learner: The stream's lease.
    """

    def __init__(self, run: Run, learner: LearnerId) -> None:
        self._run = run
        self._learner = learner
        self._header: pb.Coded | None = None
        self._coded: Vector = np.empty(0)
        self._assembler: Assembler | None = None

    def take(self, message: pb.LearnerMessage) -> pb.Refused | None:
        """Pass on what the message completes; a refusal if it came too late or twice.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        refused = None
        self._report(message.units)
        kind = message.WhichOneof("message")
        if kind == "coded":
            refused = self._announce(message.coded)
        elif kind is not None:
            raise InvalidContribution(f"{kind} was not expected here; it opens the stream")
        self._fill(message.chunks)
        return refused

    @property
    def begun(self) -> Ids | None:
        """The ids of a vector that has not come whole yet."""
        return self._header.ids if self._header and self._assembler else None

    def _report(self, reports: Sequence[pb.UnitDone]) -> None:
        """Digests of the open round are events; those that are late wake nobody."""
        for done in reports:
            if done.unit >= self._run.units or len(done.digest) != DIGEST_BYTES:
                raise InvalidContribution(
                    f"units: unit {done.unit} of {self._run.units}, digest of "
                    f"{len(done.digest)} bytes, expected {DIGEST_BYTES}"
                )
        current = [done for done in reports if self._run.is_current(done.ids)]
        for done in current:
            if not self._run.computes(self._learner, done.unit):
                raise InvalidContribution(f"units: unit {done.unit} is not of this learner's row")
        if current:
            self._run.bytes_received["digests"] += DIGEST_BYTES * len(current)
            digests = {done.unit: done.digest for done in current}
            reported = Reported(ids=current[-1].ids, learner=self._learner, digests=digests)
            self._run.inbox.put_nowait(reported)
        elif reports:
            digests = {done.unit: done.digest for done in reports}
            self._run.hear_late(reports[-1].ids, self._learner, digests)

    def _announce(self, header: pb.Coded) -> pb.Refused | None:
        self._header, self._assembler = header, None
        if not self._run.is_current(header.ids):
            text = f"iteration {header.ids.iteration} is committed or of another term"
            return _refusal(header.ids, pb.REFUSAL_STALE, text)
        if not self._run.holds(self._learner, header.row):
            raise InvalidContribution(f"coded.row {header.row} was not assigned to this learner")
        for name in ("compute_s", "started_s", "sent_s"):
            if not 0.0 <= getattr(header, name) < math.inf:
                raise InvalidContribution(f"coded.{name} is not a duration")
        if self._run.has_received(header.row):
            return _refusal(
                header.ids, pb.REFUSAL_DUPLICATE, f"row {header.row} was already received"
            )
        self._coded = np.empty(self._run.vector_size)
        self._assembler = Assembler(self._coded, array_id=header.row)
        return None

    def _fill(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            header = self._header
            if header is None:
                raise InvalidContribution("chunks came before their Coded header")
            if self._assembler is None:  # refused: the rest of it is dropped
                continue
            self._assembler.add(chunk)
            if self._assembler.complete:
                self._finish(header)

    def _finish(self, header: pb.Coded) -> None:
        self._assembler = None
        self._run.bytes_received["coded"] += self._coded.nbytes
        self._run.inbox.put_nowait(
            Arrived(
                ids=header.ids,
                learner=self._learner,
                row=header.row,
                coded=self._coded,
                batch_digest=header.batch_digest,
                compute_s=header.compute_s,
                started_s=header.started_s,
                sent_s=header.sent_s,
            )
        )


def _refusal(ids: Ids, reason: pb.Refusal.ValueType, text: str) -> pb.Refused:
    return pb.Refused(ids=ids, reason=reason, message=text)
