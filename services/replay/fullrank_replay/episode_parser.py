"""Parsing of a writer's messages into episodes, without waiting and without side effects."""

from typing import NamedTuple

import numpy as np

from fullrank.common.errors import InvalidContribution
from fullrank.common.types import FloatArray
from fullrank.net.codec import Assembler
from fullrank.replay.authorship import MOST
from fullrank.replay.intake import WrittenEpisode
from fullrank.v1 import replay_pb2 as pb


class RejectedEpisode(NamedTuple):
    """An episode that is not stored."""

    sequence: int
    reason: str
    """Opens with the field that is wrong."""

    def message(self) -> pb.EpisodeRefusal:
        """Return the refusal for its writer."""
        field, _, _ = self.reason.partition(" ")
        return pb.EpisodeRefusal(sequence=self.sequence, field=field, reason=self.reason)


class _Unfinished(NamedTuple):
    """An episode of which chunks are missing."""

    head: pb.EpisodeHead
    rows: FloatArray
    assembler: Assembler


class EpisodeParser:
    """Assembles the episodes of one stream.

    Args:
        writer: Its writer.
        entries: Entries of a row as writers send it.
        most_rows: Most rows of an episode.

    Attributes:
        last: The latest sequence that was received, whole or not.
    """

    def __init__(self, writer: int, *, entries: int, most_rows: int) -> None:
        self._writer, self._row_bytes, self._most_rows = writer, 4 * entries, most_rows
        self._unfinished: _Unfinished | None = None
        self.last = 0

    @property
    def receiving(self) -> bool:
        """True if an episode has begun that is neither whole nor refused."""
        return self._unfinished is not None

    def bytes_of(self, request: pb.WriteRequest) -> int:
        """Bytes of the episode that a message begins, 0 if it begins none of a valid size."""
        total = request.chunk.total
        valid = not total % self._row_bytes and total <= self._row_bytes * self._most_rows
        return int(total) if request.HasField("episode") and valid else 0

    def feed(self, request: pb.WriteRequest) -> list[WrittenEpisode | RejectedEpisode]:
        """Take the next message; returns the outcomes that it decides.

        Chunks after a refusal are discarded up to the next episode.

        Raises:
            InvalidContribution: The writer names itself again.
        """
        if request.HasField("hello"):
            raise InvalidContribution("hello is given again; only the first message names a writer")
        decided: list[WrittenEpisode | RejectedEpisode] = []
        if request.HasField("episode"):
            if self._unfinished is not None:
                reason = "chunk.total was not reached by the chunks"
                decided.append(RejectedEpisode(self._unfinished.head.sequence, reason))
                self._unfinished = None
            if reason := self._begin(request):
                return [*decided, RejectedEpisode(request.episode.sequence, reason)]
        if self._unfinished is not None:
            decided += self._added(self._unfinished, request)
        return decided

    def _begin(self, request: pb.WriteRequest) -> str:
        """Begin an episode; returns why it is refused, or an empty text."""
        head, total = request.episode, request.chunk.total
        if not self.last < head.sequence <= MOST:
            return f"sequence is {head.sequence}, after {self.last}"
        self.last = head.sequence
        if head.version > MOST:
            return f"version is {head.version}, more than {MOST}"
        if not total or not self.bytes_of(request):
            return (
                f"chunk.total is {total}, not 1 to {self._most_rows} rows of {self._row_bytes} "
                "bytes"
            )
        rows: FloatArray = np.empty((total // self._row_bytes, self._row_bytes // 4), "<f4")
        self._unfinished = _Unfinished(head, rows, Assembler(rows, array_id=0))
        return ""

    def _added(
        self, unfinished: _Unfinished, request: pb.WriteRequest
    ) -> list[WrittenEpisode | RejectedEpisode]:
        head = unfinished.head
        try:
            unfinished.assembler.add(request.chunk)
        except InvalidContribution as error:
            self._unfinished = None
            return [RejectedEpisode(head.sequence, str(error))]
        if not unfinished.assembler.complete:
            return []
        self._unfinished = None
        return [WrittenEpisode(self._writer, head.sequence, head.version, unfinished.rows)]
