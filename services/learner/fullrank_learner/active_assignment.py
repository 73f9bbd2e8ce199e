"""Assignments in progress, and their cancellation."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fullrank.algorithms.problem import Problem
from fullrank.common.errors import Cancelled
from fullrank.common.foreign import shown
from fullrank.common.types import EncodedVector
from fullrank.replay.items import Gathered
from fullrank.training.worker import AssignedRow
from fullrank.v1 import controller_pb2 as pb


def rows_of(assignment: pb.Assignment) -> list[AssignedRow]:
    """Return the rows that an assignment gives to this learner."""
    return [
        AssignedRow(row=row.row, units=tuple(row.units), coefficients=tuple(row.coefficients))
        for row in assignment.rows
    ]


def fault_of(assignment: pb.Assignment, problem: Problem) -> str:
    """Return what an assignment has that none of this run can have; empty if it is sound."""
    ids, sections = assignment.ids, assignment.sections
    if max(ids.term, ids.epoch, ids.iteration, *assignment.offsets) >= 2**63:
        return "number beyond 2^63"
    rows = [row.row for row in assignment.rows]
    if not rows or len(set(rows)) < len(rows):
        return f"such rows: {shown(rows)}"
    for row in assignment.rows:
        if not _is_distinct(row.units, len(problem.units)) or not row.units:
            return f"such units in row {row.row}: {shown(list(row.units))}"
        if len(row.coefficients) != len(row.units) or not np.isfinite(row.coefficients).all():
            return f"such coefficients in row {row.row}: {shown(list(row.coefficients))}"
    if not _is_distinct(sections, len(problem.sections)):
        return f"such sections: {shown(list(sections))}"
    if assignment.offsets and not len(sections) == len(assignment.offsets) == len(
        assignment.crc32c
    ):
        return f"{len(assignment.offsets)} places of {len(sections)} sections"
    if assignment.sample.size != problem.data.batch_size:
        return f"sample of {assignment.sample.size}, but one of {problem.data.batch_size}"
    return ""


def _is_distinct(numbers: Sequence[int], limit: int) -> bool:
    return len(set(numbers)) == len(numbers) and all(number < limit for number in numbers)


class CodedRow(NamedTuple):
    """A computed row, and its place in shared memory if it lies there."""

    row: int
    coded: EncodedVector
    compute_s: float
    """Computing time until it was complete, seconds."""
    offset: int = 0
    """Offset of the vector in the learner's block; 0 if it is sent."""
    checksum: int = 0
    """CRC-32C of the vector in the block."""


class Progress(NamedTuple):
    """Units that were computed, and the rows that they complete."""

    reports: list[pb.UnitDone]
    rows: list[CodedRow]


@dataclass(slots=True)
class ActiveAssignment:
    """An assignment in progress; ``abandon`` stops it at any point."""

    message: pb.Assignment
    batch: asyncio.Task[Gathered]
    missing: list[int]
    """Sections not yet received, in order."""
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once all rows are sent, or none is sent any more."""
    task: asyncio.Task[None] | None = None
    rows: list[CodedRow] = field(default_factory=list)
    """Rows that are complete."""
    batch_digest: bytes = b""
    """Digest of the minibatch, once computing has begun."""
    complete_at: float = 0.0
    """Time at which all sections had arrived, in seconds of the event loop's clock."""
    started_at: float = 0.0
    """Time at which the minibatch had arrived, too, in seconds of the event loop's clock."""
    _stopped: bool = False

    def check_cancelled(self) -> None:
        """Raise ``Cancelled`` if the assignment is abandoned; called by the computing thread."""
        if self._stopped:
            raise Cancelled(f"iteration {self.message.ids.iteration} is abandoned")

    def stop(self) -> None:
        """Have the computing thread stop at its next cancellation point."""
        self._stopped = True

    async def minibatch(self) -> Gathered:
        """Return the minibatch once it has come.

        Raises:
            Cancelled: The assignment is abandoned; replay may be away for long.
        """
        await asyncio.wait({self.batch})
        self.check_cancelled()
        return self.batch.result()

    async def abandon(self) -> None:
        """Stop the work; return once neither the thread nor the stream works on it.

        The work ends quietly when it is cancelled. It is shielded, because a cancellation of the
        caller would otherwise be passed on to it and be lost.
        """
        if self.task is not None and self.task.done():
            return
        self.stop()
        self.abandoned.set()
        self.batch.cancel()
        if self.task is not None:
            await asyncio.shield(self.task)
        self.finished.set()  # the session sets the next assignment before a waiting task runs

    async def pause(self, seconds: float) -> None:
        """Wait for ``seconds``; for ever, if they are infinite.

        Raises:
            Cancelled: The assignment is abandoned meanwhile.
        """
        if seconds > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.abandoned.wait()
        self.check_cancelled()
