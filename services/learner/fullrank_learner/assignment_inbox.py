"""The controller's messages to a ready learner: assignments, their sections, and refusals."""

import asyncio
import logging
from collections.abc import Iterable

from fullrank.common.errors import InvalidContribution
from fullrank.net.codec import Assembler
from fullrank.net.replay_client import ReplayClient
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_learner.active_assignment import ActiveAssignment, fault_of
from fullrank_learner.contributor import Contributor
from fullrank_learner.run_context import LearnerContext

log = logging.getLogger(__name__)


class AssignmentInbox:
    """Receives assignments; at most one is in progress.

    Args:
        context: Holds the parameters that arrive.
        contributor: Computes an assignment once it is complete.
        replay: Source of minibatches.
        peer: The controller, for messages.
        shares_memory: True if sections may come in the controller's block.
    """

    def __init__(
        self,
        context: LearnerContext,
        contributor: Contributor,
        replay: ReplayClient,
        *,
        peer: str,
        shares_memory: bool,
    ) -> None:
        self._context, self._contributor, self._replay = context, contributor, replay
        self._peer, self._shares_memory = peer, shares_memory
        self._assignment: ActiveAssignment | None = None
        self._assembler: Assembler | None = None

    async def take(self, message: pb.ControllerMessage) -> None:
        """Follow a message.

        Raises:
            InvalidContribution: It has sections that were not announced, or in no shared memory;
                or an assignment that does not fit the run.
        """
        kind = message.WhichOneof("message")
        if kind == "refused":
            self._refused(message.refused)
            return
        if kind in ("assignment", "commit") and self._assignment is not None:
            await self._assignment.abandon()
            self._assignment = None
        if kind == "assignment":
            self._assignment = self._accept(message.assignment)
        if self._assignment is not None and (message.chunks or message.assignment.offsets):
            self._receive(self._assignment, message.chunks)

    async def finish(self) -> None:
        """Return once no assignment is in progress; one that replaces another counts, too."""
        while self._assignment is not None and not self._assignment.finished.is_set():
            await self._assignment.finished.wait()

    async def abandon(self) -> None:
        """Abandon the assignment that is in progress, if there is one."""
        if self._assignment is not None:
            await self._assignment.abandon()

    def unsent(self) -> list[int]:
        """Return the rows of an assignment that is in progress."""
        work = self._assignment
        return [] if work is None or work.finished.is_set() else [r.row for r in work.message.rows]

    def _accept(self, assignment: pb.Assignment) -> ActiveAssignment:
        self._assembler = None
        problem = self._context.problem
        if fault := fault_of(assignment, problem):
            raise InvalidContribution(f"{self._peer}: an assignment of this run has no {fault}")
        if assignment.offsets and not self._shares_memory:
            raise InvalidContribution(f"{self._peer}: sections in memory that is not shared")
        items = problem.items_of(unit for row in assignment.rows for unit in row.units)
        fetching = asyncio.create_task(
            self._replay.await_sample(assignment.sample, row_size=problem.row_size, items=items)
        )
        missing = [] if assignment.offsets else list(assignment.sections)
        return ActiveAssignment(assignment, fetching, missing)

    def _refused(self, refused: pb.Refused) -> None:
        """Send a vector by stream that could not be read in shared memory; ignore other refusals.

        The controller sends all later assignments by stream, and so are they answered.
        """
        log.debug("refused reason=%s", refused.message)
        work = self._assignment
        if work is None or work.task is None or work.message.ids != refused.ids:
            return
        if refused.reason == pb.REFUSAL_UNREADABLE:
            work.task = asyncio.create_task(self._contributor.send_again(work, work.task))

    def _receive(self, work: ActiveAssignment, chunks: Iterable[Chunk]) -> None:
        """Write chunks directly into the parameters; start computing once all have arrived."""
        parameters = self._context.algorithm.parameters
        for chunk in chunks:
            if not work.missing:
                raise InvalidContribution(f"{self._peer}: an unannounced section")
            if self._assembler is None:
                view = parameters.view(work.missing[0])
                self._assembler = Assembler(view, array_id=work.missing[0])
            self._assembler.add(chunk)
            if self._assembler.complete:
                self._assembler = None
                del work.missing[0]
        if not work.missing:
            if not work.message.offsets:
                parameters.written()
            work.complete_at = asyncio.get_running_loop().time()
            work.task = asyncio.create_task(self._contributor.contribute(work))
