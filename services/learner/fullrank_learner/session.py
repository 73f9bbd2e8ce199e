"""One stream of Work: the learner's side of the dialogue told in controller.proto."""

import asyncio
import logging
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

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
from fullrank.config import ControllerSettings, from_toml
from fullrank.rpc.clients import ControllerClient, ReplayClient, WorkCall
from fullrank.rpc.codec import LEARNER_CHUNKS, Assembler, Field, bundle, encode_chunks
from fullrank.rpc.errors import translated
from fullrank.rpc.health import Health
from fullrank.rpc.messages import run_term_message
from fullrank.rpc.security import Security
from fullrank.rpc.tasks import first
from fullrank.runs.event_log import EventLog, Sent, Welcomed
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_learner.assignment import Job, rows_of
from fullrank_learner.run_context import Trainee
from fullrank_learner.worker import Computed

log = logging.getLogger(__name__)

WELCOME_S = 10.0
"""Longest wait from dial to Welcome: whoever takes a connection and says nothing may be frozen."""


class Session:
    """Dials, introduces itself, works until the stream ends.

    Args:
        address: The controller's ``host:port``.
        domain: With what this process fails, ``zone/host``; empty: this machine.
        pool: One thread that computes.
        trainee: From an earlier session of this process, or None.
        process: Names this process to the controller.
        health: Told when the controller can give us work, and when not.
        event_log: Told of indices leased and vectors sent.
        security: Who we are.
    """

    def __init__(
        self,
        address: str,
        *,
        domain: str,
        pool: ThreadPoolExecutor,
        trainee: Trainee | None,
        process: bytes,
        health: Health,
        event_log: EventLog,
        security: Security,
    ) -> None:
        self.trainee = trainee
        self._process = process
        self._security = security
        self._client = ControllerClient(address, security=security)
        self._domain = domain or socket.gethostname()
        self._pool = pool
        self._health = health
        self._event_log = event_log
        self._job: Job | None = None
        self._assembler: Assembler | None = None

    async def run(self) -> None:
        """Hold the dialogue; returns when the controller ends it.

        Raises:
            ServiceLost: The controller cannot be reached or went away; dial again.
            VersionMismatch: The controller runs another version.
        """
        try:
            with translated(self._client.peer):
                call = self._client.work()
                await self._dialogue(call)
        finally:
            await self._health.at_work(False)
            if self._job is not None:
                await self._job.abandon()
            await self._client.close()

    async def _dialogue(self, call: WorkCall) -> None:
        served = run_term_message(self.trainee.run_term) if self.trainee else None
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
                self._heartbeats(welcome, config.controller),
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
        """Get ready, then do what the controller says."""
        trainee = await self._learn_run(welcome)
        ready = pb.Ready(
            fingerprint=trainee.algorithm.fingerprint(),
            probe=trainee.probe.digests,
            stable=trainee.probe.stable,
        )
        await call.write(pb.LearnerMessage(ready=ready).SerializeToString())
        await self._health.at_work(True)
        log.info("learner_ready learner=%d run=%s", welcome.learner, welcome.run)
        while True:
            await self._hear(call, trainee, await _read(call))

    async def _learn_run(self, welcome: pb.Welcome) -> Trainee:
        if self.trainee is None or self.trainee.key != (welcome.run, welcome.configuration):
            loop = asyncio.get_running_loop()
            self.trainee = await loop.run_in_executor(self._pool, Trainee, welcome)
        self.trainee.run_term = RunTerm(welcome.run, welcome.term)
        return self.trainee

    async def _heartbeats(self, welcome: pb.Welcome, settings: ControllerSettings) -> None:
        """Say that we live, from Welcome on: the probe may take long.

        Raises:
            ServiceLost: The controller does not know us any more, or is as silent as a learner may
                not be: it may be frozen, and another one in office.
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

    async def _hear(self, call: WorkCall, trainee: Trainee, message: pb.ControllerMessage) -> None:
        kind = message.WhichOneof("message")
        if kind == "refused":
            log.debug("refused reason=%s", message.refused.message)
            return
        if kind in ("assignment", "commit") and self._job is not None:
            await self._job.abandon()
            self._job = None
        if kind == "assignment":
            self._job = self._accept(trainee, message.assignment)
        if self._job is not None and message.chunks:
            self._receive(call, trainee, self._job, message.chunks)

    def _accept(self, trainee: Trainee, assignment: pb.Assignment) -> Job:
        self._assembler = None
        batch = np.empty((assignment.sample.size, trainee.algorithm.row_size), np.float32)

        async def fetch() -> FloatArray:
            await self._replay.get_sample(assignment.sample, batch)
            return batch

        return Job(assignment, asyncio.create_task(fetch()), list(assignment.sections))

    def _receive(self, call: WorkCall, trainee: Trainee, job: Job, chunks: Iterable[Chunk]) -> None:
        """Write chunks straight into the parameters; start computing when all are there."""
        for chunk in chunks:
            if not job.missing:
                raise InvalidContribution(f"{self._client.peer}: a section nobody announced")
            if self._assembler is None:
                view = trainee.algorithm.view(job.missing[0])
                self._assembler = Assembler(view, array_id=job.missing[0])
            self._assembler.add(chunk)
            if self._assembler.complete:
                self._assembler = None
                del job.missing[0]
        if not job.missing:
            trainee.algorithm.written()
            job.complete_at = asyncio.get_running_loop().time()
            job.task = asyncio.create_task(self._work(call, trainee, job))

    async def _work(self, call: WorkCall, trainee: Trainee, job: Job) -> None:
        """Compute and send; silent when abandoned.

        After a failure it half-closes the stream: the controller ends it, the row is vacant, and we
        dial again.
        """
        iteration = job.assignment.ids.iteration
        try:
            with translated(self._client.peer):
                await self._contribute(call, trainee, job)
        except (Cancelled, asyncio.CancelledError):
            log.debug("abandoned iteration=%d", iteration)
        except FullrankError as error:
            log.warning("work_failed iteration=%d reason=%s", iteration, error)
            await call.done_writing()
        except Exception:
            log.exception("work_failed iteration=%d", iteration)
            await call.done_writing()

    async def _contribute(self, call: WorkCall, trainee: Trainee, job: Job) -> None:
        """Compute, report, delay if told to straggle, send."""
        ids, clock = job.assignment.ids, asyncio.get_running_loop().time
        computed, reports = await self._compute(call, trainee, job)
        delay_s = trainee.delay_s(ids.iteration, self._learner)
        if delay_s > 0.0:  # what is computed is reported even if its vector is never sent
            await call.write(pb.LearnerMessage(units=reports).SerializeToString())
            reports = []
            await job.pause(delay_s)
        for row, coded in computed.coded.items():
            head = pb.Coded(
                ids=ids,
                row=row,
                batch_digest=computed.batch_digest,
                compute_s=computed.compute_s,
                started_s=job.started_at - job.complete_at,
                sent_s=clock() - job.complete_at,
            )
            fields = encode_chunks(coded, array_id=row, field=LEARNER_CHUNKS)
            opening = pb.LearnerMessage(units=reports, coded=head).SerializeToString()
            self._note(head)
            reports = []
            for message in bundle([Field(opening), *fields]):
                job.check_cancelled()
                await call.write(message)

    def _note(self, head: pb.Coded) -> None:
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
        self, call: WorkCall, trainee: Trainee, job: Job
    ) -> tuple[Computed, list[pb.UnitDone]]:
        """Run the worker on its thread; returns the reports that were not passed on meanwhile."""
        loop = asyncio.get_running_loop()
        reports: asyncio.Queue[tuple[UnitIndex, bytes] | None] = asyncio.Queue()

        def report(unit: UnitIndex, digest: bytes) -> None:
            loop.call_soon_threadsafe(reports.put_nowait, (unit, digest))

        rows = rows_of(job.assignment)
        batch = await job.batch
        job.started_at = loop.time()
        computing = loop.run_in_executor(
            self._pool,
            lambda: trainee.worker.compute(
                rows,
                batch,
                iteration=job.assignment.ids.iteration,
                check_cancelled=job.check_cancelled,
                report=report,
            ),
        )
        computing.add_done_callback(lambda _: reports.put_nowait(None))
        pending: list[pb.UnitDone] = []
        while (done := await reports.get()) is not None:
            pending.append(pb.UnitDone(ids=job.assignment.ids, unit=done[0], digest=done[1]))
            if reports.empty() and not computing.done():
                await call.write(pb.LearnerMessage(units=pending).SerializeToString())
                pending = []
        computed = await computing
        unit, digest = computed.last
        pending.append(pb.UnitDone(ids=job.assignment.ids, unit=unit, digest=digest))
        load = sum(len(row.units) for row in rows)
        target_s = trainee.config.compute.emulate_unit_s * load
        await job.pause(target_s - (loop.time() - job.complete_at))
        return replace(computed, compute_s=max(computed.compute_s, target_s)), pending


async def _read(call: WorkCall) -> pb.ControllerMessage:
    """The next message; ``ServiceLost`` if the controller ended the stream."""
    message = await call.read()
    if isinstance(message, pb.ControllerMessage):
        return message
    raise ServiceLost(f"the controller ended the stream: {await call.details()}".rstrip(": "))
