"""An assignment in progress, and how it is abandoned wherever it is."""

import asyncio
import threading
from dataclasses import dataclass, field

from fullrank.common.errors import Cancelled
from fullrank.common.types import FloatArray
from fullrank.v1 import controller_pb2 as pb
from fullrank_learner.worker import RowOfC


def rows_of(assignment: pb.Assignment) -> list[RowOfC]:
    """The rows that it deals to this learner."""
    return [
        RowOfC(row=row.row, units=tuple(row.units), coefficients=tuple(row.coefficients))
        for row in assignment.rows
    ]


@dataclass(slots=True)
class Job:
    """An assignment in progress. ``abandon`` stops it wherever it is."""

    assignment: pb.Assignment
    batch: asyncio.Task[FloatArray]
    missing: list[int]
    """Sections still to come, in order."""
    abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    complete_at: float = 0.0
    """When every section had come, loop time."""
    started_at: float = 0.0
    """When the minibatch had come, too, loop time."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def check_cancelled(self) -> None:
        """Cancellation point of the computing thread."""
        if self._stopped.is_set():
            raise Cancelled(f"iteration {self.assignment.ids.iteration} is committed")

    async def abandon(self) -> None:
        """Stop; returns when neither thread nor stream works on it any more."""
        self._stopped.set()
        self.abandoned.set()
        if self.task is not None:
            await self.task
        else:
            self.batch.cancel()

    async def pause(self, seconds: float) -> None:
        """Wait, cut short when abandoned."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self.abandoned.wait()
            except TimeoutError:
                return
