"""One ``Work`` stream: the learner's side of the protocol, and the inbox of its assignments."""

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from fullrank import __version__
from fullrank.common.errors import InvalidContribution, NotFound, ServiceLost
from fullrank.common.types import RunTerm
from fullrank.config.elsewhere import from_elsewhere
from fullrank.config.tree import RunConfig
from fullrank.host.certificates import Role
from fullrank.host.process import first
from fullrank.host.run_directory import is_socket, port_of
from fullrank.net.attachment import keep_lease, received, welcomed
from fullrank.net.channel import Security
from fullrank.net.codec import Assembler
from fullrank.net.controller_client import ControllerClient, WorkCall
from fullrank.net.errors import translated
from fullrank.net.messages import run_term_message
from fullrank.net.replay_client import ReplayClient
from fullrank.net.server import Health
from fullrank.runs.events import EventLog, Welcomed
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_learner.active_assignment import ActiveAssignment, fault_of
from fullrank_learner.contributor import Contributor, SharedMemory
from fullrank_learner.run_context import HostPlace, LearnerContext

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


FAREWELL_S = 2.0
"""Longest wait for a controller to end the stream of a learner that leaves, seconds."""


class LearnerSession:
    """The connections of a process to the controller, each from Hello until the stream ends.

    Args:
        config: Configuration of this process.
        pool: Executor with the one computing thread.
        event_log: Records leased learner indices and sent vectors.
        prepared: Used for a new context if it fits the run.
        replica: Number of this process among those of its parent.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        pool: ThreadPoolExecutor,
        event_log: EventLog,
        prepared: LearnerContext | None = None,
        replica: int = 0,
    ) -> None:
        self._context: LearnerContext | None = None
        self._settings, self._prepared = config.learner, prepared
        self._process = uuid.uuid4().bytes
        self._place = HostPlace(replica=replica, device=config.compute.device, own=config)
        self._pool, self._event_log = pool, event_log
        self._call: WorkCall | None = None
        self._inbox: AssignmentInbox | None = None
        self._left = False

    async def run(self, address: str, security: Security, health: Health) -> None:
        """Serve a stream until the controller ends it, as it does after ``leave``.

        Args:
            address: The controller's ``host:port``.
            security: TLS identity of this process.
            health: Reports whether the controller can assign work to this learner.

        Raises:
            ServiceLost: The controller is unreachable or has disconnected; dial again.
            VersionMismatch: The controller runs another version.
        """
        self._address, self._security, self._health = address, security, health
        self._client = ControllerClient(address, security=security)
        self._call = self._inbox = None
        try:
            with translated(self._client.peer):
                call = self._client.work()
                await self._dialogue(call)
        except ServiceLost:
            if not self._left:
                raise
        finally:
            try:
                await self._health.at_work(False)
                if self._inbox is not None:
                    await self._inbox.abandon()
            finally:
                await self._client.close()

    async def leave(self) -> None:
        """Finish the assignment, take leave of the controller, and wait for the end of the stream.

        A session that has no stream yet, or whose controller is silent, does not wait for it. Rows
        that take longer than ``learner.drain_s`` are handed back to the controller.
        """
        call, inbox, within_s = self._call, self._inbox, self._settings.drain_s
        if call is None or inbox is None:
            return
        try:
            async with asyncio.timeout(within_s):
                await inbox.finish()
        except TimeoutError:
            log.warning("handed_back rows=%s: not finished in %.1f s", inbox.unsent(), within_s)
        self._left = True
        leaving = pb.LearnerMessage(leaving=pb.Leaving(rows=inbox.unsent()))
        with suppress(ServiceLost, TimeoutError), translated(self._client.peer):
            async with asyncio.timeout(FAREWELL_S):
                await inbox.abandon()
                await call.write(leaving.SerializeToString())
                await call.done_writing()
                await call.code()

    async def _dialogue(self, call: WorkCall) -> None:
        served = run_term_message(self._context.run_term) if self._context else None
        hello = pb.Hello(
            version=__version__,
            host=socket.gethostname(),
            domain=self._settings.domain or socket.gethostname(),
            served=served,
            process=self._process,
        )
        welcome = await welcomed(
            call, pb.ControllerMessage, pb.LearnerMessage(hello=hello), peer=self._client.peer
        )
        config = from_elsewhere(welcome.configuration).config
        self._event_log.append(
            Welcomed(run=welcome.run, term=welcome.term, learner=welcome.learner)
        )
        replay = ReplayClient(
            welcome.replay_address,
            deadline_s=config.replay.deadline_s,
            security=self._security,
            away=_away_log(),
        )
        replay.under(RunTerm(welcome.run, welcome.term, welcome.instance))
        try:
            await first(
                keep_lease(
                    self._client, welcome, config.controller, role=Role.LEARNER, say=log.warning
                ),
                self._serve(call, welcome, replay),
            )
        finally:
            await replay.close()

    async def _serve(self, call: WorkCall, welcome: pb.Welcome, replay: ReplayClient) -> None:
        """Report readiness, then follow the controller's messages."""
        began_at = asyncio.get_running_loop().time() - welcome.elapsed_s
        context = await self._context_of(welcome)
        memory = self._shared_memory(welcome)
        ready = pb.Ready(
            fingerprint=context.algorithm.gradients.fingerprint(),
            probe=context.probe.digests,
            stable=context.probe.stable,
            maps_table=await _maps_table(context, replay),
            block=None if memory is None else memory.location,
        )
        await call.write(pb.LearnerMessage(ready=ready).SerializeToString())
        self._call = call
        await self._health.at_work(True)
        device = context.config.compute.device
        log.info("learner_ready learner=%d run=%s device=%s", welcome.learner, welcome.run, device)
        contributor = Contributor(
            call,
            peer=self._client.peer,
            learner=welcome.learner,
            context=context,
            pool=self._pool,
            memory=memory,
            event_log=self._event_log,
            began_at=began_at,
        )
        shares, peer = memory is not None, self._client.peer
        inbox = AssignmentInbox(context, contributor, replay, peer=peer, shares_memory=shares)
        self._inbox = inbox
        while True:
            message = await received(call, pb.ControllerMessage)
            if not self._left:
                await inbox.take(message)

    def _shared_memory(self, welcome: pb.Welcome) -> SharedMemory | None:
        """Open the controller's block; None if it is on another host or behind a proxy."""
        if not welcome.HasField("block") or not self._dialled_controller(welcome):
            return None
        try:
            return SharedMemory.with_controller(welcome.block)
        except NotFound as error:
            log.info("memory_not_shared reason=%s", error)
            return None

    def _dialled_controller(self, welcome: pb.Welcome) -> bool:
        """Return whether the dialled address is the controller's own, not that of a proxy."""
        if is_socket(self._address):
            return self._address == welcome.socket
        return port_of(self._address) == welcome.port

    async def _context_of(self, welcome: pb.Welcome) -> LearnerContext:
        context = self._context
        if context is None or not context.serves(welcome):
            context = self._prepared
        if context is None or not context.fits(welcome):
            make = partial(LearnerContext, welcome, place=self._place)
            context = await asyncio.get_running_loop().run_in_executor(self._pool, make)
        context.run_term = RunTerm(welcome.run, welcome.term, welcome.instance)
        self._context = context
        return context


def _away_log() -> Callable[[str], None]:
    """Log once that a minibatch waits for replay, and once that it waits no more."""
    waiting = False

    def report(reason: str) -> None:
        nonlocal waiting
        if reason and not waiting:
            log.warning("replay_away reason=%s", reason)
        elif not reason:
            log.info("wait_for_replay_ended")
        waiting = bool(reason)

    return report


async def _maps_table(context: LearnerContext, replay: ReplayClient) -> bool:
    """Map the table from which minibatches are drawn; return whether that is possible."""
    if not context.algorithm.problem.data.batch_size:
        return False
    try:
        await replay.map_table()
    except (NotFound, ServiceLost) as error:
        log.info("table_not_mapped reason=%s", error)
        return False
    return True
