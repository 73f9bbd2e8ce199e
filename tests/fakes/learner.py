"""A learner that commits one fault and otherwise works correctly."""

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc
import numpy as np
from tests.fakes.computation import Contribution, compute, wrong_worker
from tests.fakes.faults import COMPUTED, WRONG, Fault
from tests.fakes.messages import break_off, contribute, hear, say
from tests.waiting import WAIT_S

from fullrank import __version__
from fullrank.common.types import EncodedVector
from fullrank.net.channel import PLAINTEXT, Security
from fullrank.net.codec import Assembler
from fullrank.net.controller_client import ControllerClient, WorkCall
from fullrank.net.replay_client import ReplayClient
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank_learner.run_context import LearnerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Status with which the controller ended a stream."""

    code: grpc.StatusCode
    details: str


@dataclass(slots=True)
class FakeLearner:
    """Computes as a learner does, commits one fault, and continues without faults.

    Args:
        address: Address of the controller.
        fault: Its fault, committed when it introduces itself or in iteration ``at``.
        at: Iteration of the fault.
        security: Its credentials.
    """

    address: str
    fault: Fault = Fault.OK
    at: int = 0
    security: Security = PLAINTEXT
    process: bytes = b""
    """Identity of its process, kept when it dials again."""
    domain: str = field(default_factory=socket.gethostname)
    """Failure domain that it claims."""
    greeted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it holds an index or was turned away."""
    assigned: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it got the assignment of iteration ``at``."""
    release: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets STALL, WRONG_LATE and DUPLICATE continue."""
    refused: list[pb.Refused] = field(default_factory=list)
    died: bool = False
    answered: int = 0
    """Number of rounds for which it sent a vector."""

    async def run(self) -> Ending:
        """Work until the controller ends the stream; returns its status."""
        client = ControllerClient(self.address, security=self.security)
        call = client.work()
        try:
            await self._serve_assignments(call)
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass
        except asyncio.CancelledError:
            if not self.died:
                raise
        ending = Ending(code=await call.code(), details=await call.details() or "")
        await client.close()
        return ending

    async def _serve_assignments(self, call: WorkCall) -> None:
        version = "0.0.0" if self.fault is Fault.OTHER_VERSION else __version__
        hello = pb.Hello(version=version, host="fake", domain=self.domain, process=self.process)
        await say(call, hello=hello)
        try:
            welcome = await hear(call)
        finally:
            self.greeted.set()
        if welcome is None:
            return
        context = await asyncio.to_thread(LearnerContext, welcome.welcome)
        await say(call, ready=self._ready(context))
        replay = ReplayClient(
            welcome.welcome.replay_address, deadline_s=WAIT_S, security=self.security
        )
        replay.under(context.run_term)
        try:
            while (message := await hear(call)) is not None:
                if message.WhichOneof("message") == "refused":
                    self.refused.append(message.refused)
                if message.WhichOneof("message") == "assignment":
                    await self._answer(call, context, replay, message)
        finally:
            await replay.close()

    def _ready(self, context: LearnerContext) -> pb.Ready:
        other = self.fault is Fault.OTHER_FINGERPRINT
        return pb.Ready(
            fingerprint="another kernel" if other else context.algorithm.gradients.fingerprint(),
            probe=context.probe.digests,
            stable=context.probe.stable and self.fault is not Fault.UNSTABLE_PROBE,
        )

    async def _answer(
        self,
        call: WorkCall,
        context: LearnerContext,
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
                    message = await hear(call)
                    if message is None or message.WhichOneof("message") is not None:
                        return  # committed meanwhile
                assembler.add(message.chunks.pop(0))
        context.algorithm.parameters.written()
        problem = context.problem
        items = problem.items_of(unit for row in assignment.rows for unit in row.units)
        batch = await replay.get_sample(assignment.sample, row_size=problem.row_size, items=items)
        fault = self.fault if due else Fault.OK
        if fault is Fault.WRONG_BATCH:
            batch = batch._replace(rows=batch.rows + np.eye(1, problem.row_size, dtype=np.float32))
        worker = wrong_worker(context) if fault in WRONG else context.worker
        units, computed = await asyncio.to_thread(compute, worker, assignment, batch)
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
        for row, coded in computed.coded.items():
            if fault not in (Fault.OK, Fault.STALL, *COMPUTED):
                await self._inject_fault(call, fault, assignment, units, row, coded, computed)
            if fault in (Fault.OK, Fault.STALE, Fault.STALL, *COMPUTED):
                await contribute(call, assignment.ids, row, coded, computed, units)

    async def _inject_fault(
        self,
        call: WorkCall,
        fault: Fault,
        assignment: pb.Assignment,
        units: Sequence[pb.UnitDone],
        row: int,
        coded: EncodedVector,
        computed: Contribution,
    ) -> None:
        ids = Ids()
        ids.CopyFrom(assignment.ids)
        if fault is Fault.STALE:
            ids.term -= 1
            await contribute(call, ids, row, coded, computed, units)
        elif fault is Fault.NAN:
            broken = coded.copy()
            broken[0] = np.nan
            await contribute(call, ids, row, broken, computed, units)
        elif fault is Fault.WRONG_LENGTH:
            await contribute(call, ids, row, coded[:-1], computed, units)
        elif fault is Fault.WRONG_ROW:
            await contribute(call, ids, row + 1, coded, computed, units)
        elif fault is Fault.DUPLICATE:
            await contribute(call, ids, row, coded, computed, units)
            await self.release.wait()
            await contribute(call, ids, row, coded, computed, ())
        elif fault in (Fault.WRONG_VECTOR, Fault.BIT_FLIP, Fault.SCALE):
            broken = 2.0 * coded if fault is Fault.SCALE else coded.copy()
            if fault is Fault.WRONG_VECTOR:
                broken[0] += 2.0**-20
            if fault is Fault.BIT_FLIP:
                broken.view(np.uint8)[-1] ^= np.uint8(1 << 6)  # of the exponent
            await contribute(call, ids, row, broken, computed, units)
        elif fault is Fault.WRONG_DIGEST:
            wrong = [
                pb.UnitDone(ids=ids, unit=done.unit, digest=bytes(len(done.digest)))
                for done in units
            ]
            await contribute(call, ids, row, coded, computed, wrong)
        elif fault is Fault.FORGED_IDENTITY:  # speaks for the holder of the next unit
            forged = pb.UnitDone(ids=ids, unit=units[0].unit + 1, digest=units[0].digest)
            await call.write(pb.LearnerMessage(units=[forged]).SerializeToString())
        elif fault is Fault.NO_DIGESTS:
            await contribute(call, ids, row, coded, computed, ())
        elif fault is Fault.DIE_BEFORE:
            self.died = True
            call.cancel()
        else:
            self.died = fault is Fault.DIE_MID_STREAM
            await break_off(call, fault, pb.Coded(ids=ids, row=row), coded)
