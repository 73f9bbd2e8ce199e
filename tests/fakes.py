"""A learner that speaks Work by hand and can misbehave in every way the controller must survive."""

import asyncio
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import google_crc32c
import grpc
import numpy as np

from fullrank import __version__
from fullrank.algorithms import Gradients
from fullrank.common.types import FloatArray, UnitIndex, Vector
from fullrank.common.updates import batch_digest, snap
from fullrank.rpc.clients import ControllerClient, ReplayClient, WorkCall
from fullrank.rpc.codec import LEARNER_CHUNKS, Assembler, Field, bundle, encode_chunks
from fullrank.rpc.security import PLAINTEXT, Security
from fullrank.training.worker import Worker
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_learner.assignment import rows_of
from fullrank_learner.run_context import RunContext
from fullrank_learner.session import Contribution


class Fault(Enum):
    """How a learner misbehaves; after a refusal that leaves its stream open it behaves."""

    OK = auto()
    NAN = auto()
    WRONG_LENGTH = auto()
    WRONG_ROW = auto()
    STALE = auto()
    DUPLICATE = auto()
    BAD_CRC = auto()
    GARBAGE = auto()
    CHUNKS_FIRST = auto()
    DIE_BEFORE = auto()
    DIE_MID_STREAM = auto()
    HANG_MID_STREAM = auto()
    NO_DIGESTS = auto()
    STALL = auto()
    WRONG_DIGEST = auto()
    WRONG_VECTOR = auto()
    BIT_FLIP = auto()
    SCALE = auto()
    FORGED_IDENTITY = auto()
    WRONG_UPDATE = auto()
    """Wrong digests that fit the vector: only another learner's digest, or a proof, tells."""
    WRONG_LATE = auto()
    """The same, after a stall."""
    OTHER_VERSION = auto()
    UNSTABLE_PROBE = auto()
    OTHER_FINGERPRINT = auto()


_WRONG = (Fault.WRONG_UPDATE, Fault.WRONG_LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How the controller ended a stream."""

    code: grpc.StatusCode
    details: str


@dataclass(slots=True)
class FakeLearner:
    """Computes as a learner does, and commits one fault; then it goes on without faults.

    Args:
        address: The controller's.
        fault: What it does wrong, when it introduces itself or in iteration ``at``.
        at: That iteration; it behaves before.
        security: Who it is.
    """

    address: str
    fault: Fault = Fault.OK
    at: int = 0
    security: Security = PLAINTEXT
    process: bytes = b""
    """By which it is known when it dials again."""
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    """It holds an index, or was turned away."""
    assigned: asyncio.Event = field(default_factory=asyncio.Event)
    """It got the assignment of iteration ``at``."""
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets STALL, WRONG_LATE and DUPLICATE go on."""
    refused: list[pb.Refused] = field(default_factory=list)
    died: bool = False
    answered: int = 0
    """Rounds that it sent a vector for."""

    async def run(self) -> Ending:
        """Work until the controller ends the stream; how it did."""
        client = ControllerClient(self.address, security=self.security)
        call = client.work()
        try:
            await self._converse(call)
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass
        except asyncio.CancelledError:
            if not self.died:
                raise
        ending = Ending(code=await call.code(), details=await call.details() or "")
        await client.close()
        return ending

    async def _converse(self, call: WorkCall) -> None:
        version = "0.0.0" if self.fault is Fault.OTHER_VERSION else __version__
        hello = pb.Hello(
            version=version, host="fake", domain=socket.gethostname(), process=self.process
        )
        await _say(call, hello=hello)
        try:
            welcome = await _hear(call)
        finally:
            self.greeted.set()
        if welcome is None:
            return
        context = await asyncio.to_thread(RunContext, welcome.welcome)
        await _say(call, ready=self._ready(context))
        replay = ReplayClient(
            welcome.welcome.replay_address, deadline_s=30.0, security=self.security
        )
        try:
            while (message := await _hear(call)) is not None:
                if message.WhichOneof("message") == "refused":
                    self.refused.append(message.refused)
                if message.WhichOneof("message") == "assignment":
                    await self._answer(call, context, replay, message)
        finally:
            await replay.close()

    def _ready(self, context: RunContext) -> pb.Ready:
        other = self.fault is Fault.OTHER_FINGERPRINT
        return pb.Ready(
            fingerprint="another kernel" if other else context.algorithm.gradients.fingerprint(),
            probe=context.probe.digests,
            stable=context.probe.stable and self.fault is not Fault.UNSTABLE_PROBE,
        )

    async def _answer(
        self,
        call: WorkCall,
        context: RunContext,
        replay: ReplayClient,
        message: pb.ControllerMessage | None,
    ) -> None:
        assert message is not None
        assignment = message.assignment
        due = assignment.ids.iteration >= self.at
        if due:
            self.assigned.set()
        for section in assignment.sections:
            assembler = Assembler(context.algorithm.parameters.view(section), array_id=section)
            while not assembler.complete:
                while not message.chunks:
                    message = await _hear(call)
                    if message is None or message.WhichOneof("message") is not None:
                        return  # committed meanwhile
                assembler.add(message.chunks.pop(0))
        context.algorithm.parameters.written()
        batch = np.empty((assignment.sample.size, context.algorithm.problem.row_size), np.float32)
        await replay.get_sample(assignment.sample, batch)
        fault = self.fault if due else Fault.OK
        worker = _wrong_worker(context) if fault in _WRONG else context.worker
        units, computed = await asyncio.to_thread(_compute, worker, assignment, batch)
        if due:
            self.fault = Fault.OK
        await self._send(call, fault, assignment, units, computed)
        self.answered += 1

    async def _send(
        self,
        call: WorkCall,
        fault: Fault,
        assignment: pb.Assignment,
        units: Sequence[pb.UnitDone],
        computed: Contribution,
    ) -> None:
        if fault in (Fault.STALL, Fault.WRONG_LATE):
            await self.release.wait()
        if fault is Fault.GARBAGE:
            await call.write(b"\xff\xff\xff\xff")
            return
        for row, coded in computed.computed.coded.items():
            if fault not in (Fault.OK, Fault.STALL, *_WRONG):
                await self._misbehave(call, fault, assignment, units, row, coded, computed)
            if fault in (Fault.OK, Fault.STALE, Fault.STALL, *_WRONG):
                await _contribute(call, assignment.ids, row, coded, computed, units)

    async def _misbehave(
        self,
        call: WorkCall,
        fault: Fault,
        assignment: pb.Assignment,
        units: Sequence[pb.UnitDone],
        row: int,
        coded: Vector,
        computed: Contribution,
    ) -> None:
        ids = Ids()
        ids.CopyFrom(assignment.ids)
        if fault is Fault.STALE:
            ids.term -= 1
            await _contribute(call, ids, row, coded, computed, units)
        elif fault is Fault.NAN:
            broken = coded.copy()
            broken[0] = np.nan
            await _contribute(call, ids, row, broken, computed, units)
        elif fault is Fault.WRONG_LENGTH:
            await _contribute(call, ids, row, coded[:-1], computed, units)
        elif fault is Fault.WRONG_ROW:
            await _contribute(call, ids, row + 1, coded, computed, units)
        elif fault is Fault.DUPLICATE:
            await _contribute(call, ids, row, coded, computed, units)
            await self.release.wait()
            await _contribute(call, ids, row, coded, computed, ())
        elif fault in (Fault.WRONG_VECTOR, Fault.BIT_FLIP, Fault.SCALE):
            broken = 2.0 * coded if fault is Fault.SCALE else coded.copy()
            if fault is Fault.WRONG_VECTOR:
                broken[0] += 2.0**-20
            if fault is Fault.BIT_FLIP:
                broken.view(np.uint64)[-1] ^= np.uint64(1 << 62)  # of the exponent
            await _contribute(call, ids, row, broken, computed, units)
        elif fault is Fault.WRONG_DIGEST:
            wrong = [pb.UnitDone(ids=ids, unit=unit.unit, digest=bytes(16)) for unit in units]
            await _contribute(call, ids, row, coded, computed, wrong)
        elif fault is Fault.FORGED_IDENTITY:  # speaks for who holds the next unit
            forged = pb.UnitDone(ids=ids, unit=units[0].unit + 1, digest=units[0].digest)
            await call.write(pb.LearnerMessage(units=[forged]).SerializeToString())
        elif fault is Fault.NO_DIGESTS:
            await _contribute(call, ids, row, coded, computed, ())
        elif fault is Fault.DIE_BEFORE:
            self.died = True
            call.cancel()
        else:
            self.died = fault is Fault.DIE_MID_STREAM
            await _break_off(call, fault, pb.Coded(ids=ids, row=row), coded)


async def _break_off(call: WorkCall, fault: Fault, header: pb.Coded, coded: Vector) -> None:
    message = pb.LearnerMessage(coded=header)
    for field_ in encode_chunks(coded, array_id=header.row, field=LEARNER_CHUNKS):
        message.MergeFromString(bytes(field_))
    if fault is Fault.BAD_CRC:
        message.chunks[0].crc32c ^= 1
    elif fault is Fault.CHUNKS_FIRST:
        message.ClearField("coded")
    elif fault in (Fault.DIE_MID_STREAM, Fault.HANG_MID_STREAM):
        message.chunks[0].data = message.chunks[0].data[: len(message.chunks[0].data) // 2]
        message.chunks[0].crc32c = google_crc32c.value(message.chunks[0].data)
    await call.write(message.SerializeToString())
    if fault is Fault.DIE_MID_STREAM:
        call.cancel()


class _WrongGradients:
    """The learner's own, but for one entry of every update."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = gradients

    def compute(self, *words: Any, **named: Any) -> Iterator[tuple[UnitIndex, FloatArray]]:
        for unit, update in self._gradients.compute(*words, **named):
            wrong = update.copy()
            wrong[0] = snap(wrong[:1] + np.float32(2.0**-20))[0]
            yield unit, wrong

    def fingerprint(self) -> str:
        return self._gradients.fingerprint()


def _wrong_worker(context: RunContext) -> Worker:
    return Worker(context.problem, _WrongGradients(context.algorithm.gradients))


def _compute(
    worker: Worker, assignment: pb.Assignment, batch: FloatArray
) -> tuple[list[pb.UnitDone], Contribution]:
    units: list[pb.UnitDone] = []
    computed = worker.compute(
        rows_of(assignment),
        batch,
        iteration=assignment.ids.iteration,
        check_cancelled=lambda: None,
        report=lambda unit, digest: units.append(
            pb.UnitDone(ids=assignment.ids, unit=unit, digest=digest)
        ),
    )
    unit, digest = computed.last
    reports = [*units, pb.UnitDone(ids=assignment.ids, unit=unit, digest=digest)]
    return reports, Contribution(computed, batch_digest(batch), 0.0)


async def _contribute(
    call: WorkCall,
    ids: Ids,
    row: int,
    coded: Vector,
    computed: Contribution,
    units: Sequence[pb.UnitDone],
) -> None:
    header = pb.Coded(ids=ids, row=row, batch_digest=computed.batch_digest, compute_s=0.0)
    first = pb.LearnerMessage(units=units, coded=header).SerializeToString()
    for message in bundle(
        [Field(first), *encode_chunks(coded, array_id=row, field=LEARNER_CHUNKS)]
    ):
        await call.write(message)


async def _say(
    call: WorkCall, *, hello: pb.Hello | None = None, ready: pb.Ready | None = None
) -> None:
    await call.write(pb.LearnerMessage(hello=hello, ready=ready).SerializeToString())


async def _hear(call: WorkCall) -> pb.ControllerMessage | None:
    message = await call.read()
    return message if isinstance(message, pb.ControllerMessage) else None
