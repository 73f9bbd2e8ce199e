"""One ``Work`` stream: the learner's side of the protocol in controller.proto."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from fullrank import __version__
from fullrank.common.errors import (
    Cancelled,
    FullrankError,
    InvalidContribution,
    NotFound,
    ServiceLost,
)
from fullrank.common.types import FloatArray, RunTerm, UnitIndex
from fullrank.common.updates import batch_digest
from fullrank.config import ControllerSettings, from_toml
from fullrank.rpc.clients import ControllerClient, ReplayClient, WorkCall
from fullrank.rpc.codec import LEARNER_CHUNKS, Assembler, Field, bundle, encode_chunks
from fullrank.rpc.errors import translated
from fullrank.rpc.health import Health
from fullrank.rpc.messages import run_term_message
from fullrank.rpc.security import Security
from fullrank.rpc.tasks import first
from fullrank.runs.event_log import EventLog, Sent, Welcomed
from fullrank.training.worker import Computed
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_learner.assignment import Assignment, rows_of
from fullrank_learner.run_context import RunContext

log = logging.getLogger(__name__)

WELCOME_S = 10.0
"""Maximum wait from dial to Welcome, in seconds; a silent controller may be frozen."""


class Contribution(NamedTuple):
    """Coded vectors of one assignment, with the digest of its minibatch and the compute time."""

    computed: Computed
    batch_digest: bytes
    compute_s: float


class Session:
    """A connection to the controller, from Hello until the stream ends.

    Args:
        address: The controller's ``host:port``.
        domain: Failure domain of this process, ``zone/host``; empty: this machine.
        pool: Executor with the one computing thread.
        context: Context from an earlier session of this process, or None.
        process: Identifies this process to the controller.
        health: Reports whether the controller can assign work to this learner.
        event_log: Records leased learner indices and sent vectors.
        security: TLS identity of this process.
    """

    def __init__(
        self,
        address: str,
        *,
        domain: str,
        pool: ThreadPoolExecutor,
        context: RunContext | None,
        process: bytes,
        health: Health,
        event_log: EventLog,
        security: Security,
    ) -> None:
        self.context = context
        self._process = process
        self._security = security
        self._client = ControllerClient(address, security=security)
        self._domain = domain or socket.gethostname()
        self._pool = pool
        self._health = health
        self._event_log = event_log
        self._assignment: Assignment | None = None
        self._assembler: Assembler | None = None

    async def run(self) -> None:
        """Serve the stream until the controller ends it.

        Raises:
            ServiceLost: The controller is unreachable or has disconnected; dial again.
            VersionMismatch: The controller runs another version.
        """
        try:
            with translated(self._client.peer):
                call = self._client.work()
                await self._dialogue(call)
        finally:
            await self._health.at_work(False)
            if self._assignment is not None:
                await self._assignment.abandon()
            await self._client.close()

    async def _dialogue(self, call: WorkCall) -> None:
        served = run_term_message(self.context.run_term) if self.context else None
        hello = pb.Hello(
            version=__version__,
            host=socket.gethostname(),
            domain=self._domain,
            served=served,
            process=self._process,
        )
        welcome = await self._welcome(call, hello)
        config = from_toml(welcome.configuration)
        self._learner = welcome.learner
        self._event_log.append(
            Welcomed(run=welcome.run, term=welcome.term, learner=welcome.learner)
        )
        self._replay = ReplayClient(
            welcome.replay_address, deadline_s=config.replay.deadline_s, security=self._security
        )
        try:
            await first(
                self._send_heartbeats(welcome, config.controller),
                self._serve(call, welcome),
            )
        finally:
            await self._replay.close()

    async def _welcome(self, call: WorkCall, hello: pb.Hello) -> pb.Welcome:
        try:
            async with asyncio.timeout(WELCOME_S):
                await call.write(pb.LearnerMessage(hello=hello).SerializeToString())
                return (await _read(call)).welcome
        except TimeoutError:
            raise ServiceLost(f"{self._client.peer}: no welcome within {WELCOME_S:.0f} s") from None

    async def _serve(self, call: WorkCall, welcome: pb.Welcome) -> None:
        """Report readiness, then follow the controller's messages."""
        context = await self._context_of(welcome)
        ready = pb.Ready(
            fingerprint=context.algorithm.gradients.fingerprint(),
            probe=context.probe.digests,
            stable=context.probe.stable,
        )
        await call.write(pb.LearnerMessage(ready=ready).SerializeToString())
        await self._health.at_work(True)
        log.info("learner_ready learner=%d run=%s", welcome.learner, welcome.run)
        while True:
            await self._follow(call, context, await _read(call))

    async def _context_of(self, welcome: pb.Welcome) -> RunContext:
        if self.context is None or self.context.key != (welcome.run, welcome.configuration):
            loop = asyncio.get_running_loop()
            self.context = await loop.run_in_executor(self._pool, RunContext, welcome)
        self.context.run_term = RunTerm(welcome.run, welcome.term)
        return self.context

    async def _send_heartbeats(self, welcome: pb.Welcome, settings: ControllerSettings) -> None:
        """Send heartbeats from Welcome on, because the probe may take long.

        Raises:
            ServiceLost: The controller no longer knows this learner, or has been silent for longer
                than ``lost_after_s``: it may be frozen and superseded by a controller of a later
                term.
        """
        clock = asyncio.get_running_loop().time
        answered_at = clock()
        while True:
            await asyncio.sleep(settings.heartbeat_s)
            try:
                await self._client.heartbeat(welcome.lease, timeout_s=settings.lost_after_s)
                answered_at = clock()
            except NotFound as error:
                raise ServiceLost(str(error)) from None
            except ServiceLost as error:
                if clock() - answered_at > settings.lost_after_s:
                    raise
                log.warning("heartbeat_failed learner=%d reason=%s", welcome.learner, error)

    async def _follow(
        self, call: WorkCall, context: RunContext, message: pb.ControllerMessage
    ) -> None:
        kind = message.WhichOneof("message")
        if kind == "refused":
            log.debug("refused reason=%s", message.refused.message)
            return
        if kind in ("assignment", "commit") and self._assignment is not None:
            await self._assignment.abandon()
            self._assignment = None
        if kind == "assignment":
            self._assignment = self._accept(context, message.assignment)
        if self._assignment is not None and message.chunks:
            self._receive(call, context, self._assignment, message.chunks)

    def _accept(self, context: RunContext, assignment: pb.Assignment) -> Assignment:
        self._assembler = None
        batch = np.empty((assignment.sample.size, context.algorithm.problem.row_size), np.float32)

        async def fetch() -> FloatArray:
            await self._replay.get_sample(assignment.sample, batch)
            return batch

        return Assignment(assignment, asyncio.create_task(fetch()), list(assignment.sections))

    def _receive(
        self, call: WorkCall, context: RunContext, work: Assignment, chunks: Iterable[Chunk]
    ) -> None:
        """Write chunks directly into the parameters; start computing once all have arrived."""
        for chunk in chunks:
            if not work.missing:
                raise InvalidContribution(f"{self._client.peer}: an unannounced section")
            if self._assembler is None:
                view = context.algorithm.parameters.view(work.missing[0])
                self._assembler = Assembler(view, array_id=work.missing[0])
            self._assembler.add(chunk)
            if self._assembler.complete:
                self._assembler = None
                del work.missing[0]
        if not work.missing:
            context.algorithm.parameters.written()
            work.complete_at = asyncio.get_running_loop().time()
            work.task = asyncio.create_task(self._work(call, context, work))

    async def _work(self, call: WorkCall, context: RunContext, work: Assignment) -> None:
        """Compute and send; send nothing once abandoned.

        A failure half-closes the stream: the controller ends it, the row becomes vacant, and the
        learner redials.
        """
        iteration = work.message.ids.iteration
        try:
            with translated(self._client.peer):
                await self._contribute(call, context, work)
        except (Cancelled, asyncio.CancelledError):
            log.debug("abandoned iteration=%d", iteration)
        except FullrankError as error:
            log.warning("work_failed iteration=%d reason=%s", iteration, error)
            await call.done_writing()
        except Exception:
            log.exception("work_failed iteration=%d", iteration)
            await call.done_writing()

    async def _contribute(self, call: WorkCall, context: RunContext, work: Assignment) -> None:
        """Compute, report, wait for an injected delay, and send."""
        ids, clock = work.message.ids, asyncio.get_running_loop().time
        contribution, reports = await self._compute(call, context, work)
        delay_s = context.delay_s(ids.iteration, self._learner)
        if delay_s > 0.0:  # report computed units even if the coded vector is never sent
            await call.write(pb.LearnerMessage(units=reports).SerializeToString())
            reports = []
            await work.pause(delay_s)
        for row, coded in contribution.computed.coded.items():
            head = pb.Coded(
                ids=ids,
                row=row,
                batch_digest=contribution.batch_digest,
                compute_s=contribution.compute_s,
                started_s=work.started_at - work.complete_at,
                sent_s=clock() - work.complete_at,
            )
            fields = encode_chunks(coded, array_id=row, field=LEARNER_CHUNKS)
            opening = pb.LearnerMessage(units=reports, coded=head).SerializeToString()
            self._log_sent(head)
            reports = []
            for message in bundle([Field(opening), *fields]):
                work.check_cancelled()
                await call.write(message)

    def _log_sent(self, head: pb.Coded) -> None:
        ids = head.ids
        self._event_log.append(
            Sent(
                run=ids.run,
                term=ids.term,
                epoch=ids.epoch,
                iteration=ids.iteration,
                attempt=ids.attempt,
                learner=self._learner,
                row=head.row,
                batch_digest=head.batch_digest.hex(),
            )
        )

    async def _compute(
        self, call: WorkCall, context: RunContext, work: Assignment
    ) -> tuple[Contribution, list[pb.UnitDone]]:
        """Run the worker on its thread; return the contribution and the reports not yet sent."""
        loop = asyncio.get_running_loop()
        reports: asyncio.Queue[tuple[UnitIndex, bytes] | None] = asyncio.Queue()

        def report(unit: UnitIndex, digest: bytes) -> None:
            loop.call_soon_threadsafe(reports.put_nowait, (unit, digest))

        rows = rows_of(work.message)
        batch = await work.batch
        work.started_at = loop.time()

        def compute() -> Contribution:
            start = time.perf_counter()
            computed = context.worker.compute(
                rows,
                batch,
                iteration=work.message.ids.iteration,
                check_cancelled=work.check_cancelled,
                report=report,
            )
            digest = batch_digest(batch)
            return Contribution(computed, digest, time.perf_counter() - start)

        computing = loop.run_in_executor(self._pool, compute)
        computing.add_done_callback(lambda _: reports.put_nowait(None))
        pending: list[pb.UnitDone] = []
        while (done := await reports.get()) is not None:
            pending.append(pb.UnitDone(ids=work.message.ids, unit=done[0], digest=done[1]))
            if reports.empty() and not computing.done():
                await call.write(pb.LearnerMessage(units=pending).SerializeToString())
                pending = []
        contribution = await computing
        unit, digest = contribution.computed.last
        pending.append(pb.UnitDone(ids=work.message.ids, unit=unit, digest=digest))
        load = sum(len(row.units) for row in rows)
        target_s = context.config.compute.emulate_unit_s * load
        await work.pause(target_s - (loop.time() - work.complete_at))
        compute_s = max(contribution.compute_s, target_s)
        return contribution._replace(compute_s=compute_s), pending


async def _read(call: WorkCall) -> pb.ControllerMessage:
    """Return the next message.

    Raises:
        ServiceLost: The controller ended the stream.
    """
    message = await call.read()
    if isinstance(message, pb.ControllerMessage):
        return message
    raise ServiceLost(f"the controller ended the stream: {await call.details()}".rstrip(": "))
