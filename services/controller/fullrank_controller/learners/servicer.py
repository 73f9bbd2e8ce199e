"""ControllerService: streams in, each field checked before anything is stored, outboxes out.

It also takes the orders of administrators to a run under way: checkpoint, drain, stop, another
length.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from fullrank.common.deadlines import is_duration
from fullrank.common.durable import replace_text, writing
from fullrank.common.errors import (
    FullrankError,
    InvalidContribution,
    NotFound,
    ServiceLost,
    StorageFailed,
)
from fullrank.common.schema import ORDINALS
from fullrank.common.types import EncodedVector
from fullrank.config.toml import to_toml
from fullrank.host.process import first
from fullrank.host.shared_memory import ReadBlock
from fullrank.net.codec import Assembler
from fullrank.net.errors import Context
from fullrank.run.round_orders import Arrived, MembershipChanged, SectionsUnreadable
from fullrank.runs.events import Joined, Left, Refused
from fullrank.runs.identity import CONFIGURATION
from fullrank.v1 import controller_pb2 as pb
from fullrank.v1.common_pb2 import Ids
from fullrank.v1.tensor_pb2 import Chunk
from fullrank_controller.driver import Driver
from fullrank_controller.identity import RunIdentity
from fullrank_controller.membership.member import Member, Numerics
from fullrank_controller.rounds.reception import Reception
from fullrank_controller.run import Run
from fullrank_controller.streams import (
    READY_S,
    CollectorMessages,
    admitted,
    greeted,
    next_of,
    origin_of,
    serve_collector,
)
from fullrank_controller.term import Term

log = logging.getLogger(__name__)


class ContributionParser:
    """Validates the messages of one learner and assembles its coded vectors.

    A vector is assembled only after the reception has admitted its header.

    Args:
        identity: The run; it fixes the number of units and the length of a vector.
        reception: Admits headers, and receives digests and complete vectors.
        member: The stream's learner.
    """

    def __init__(self, identity: RunIdentity, reception: Reception, member: Member) -> None:
        self._identity, self._reception, self._member = identity, reception, member
        self._learner = member.learner
        self._header: pb.Coded | None = None
        self._coded: EncodedVector = np.empty(0)
        self._assembler: Assembler | None = None

    def parse(self, message: pb.LearnerMessage) -> pb.Refused | None:
        """Pass on the contributions that the message completes; a refusal if one is stale.

        Raises:
            InvalidContribution: A field is wrong; the stream must end.
        """
        refused = None
        self._report(message.units)
        kind = message.WhichOneof("message")
        if kind == "coded":
            refused = self._announce(message.coded)
        elif kind == "unreadable":
            unreadable = SectionsUnreadable(self._learner)
            self._reception.notify(unreadable, message.unreadable.ids)
        elif kind is not None:
            raise InvalidContribution(f"{kind} was not expected here; it opens the stream")
        self._fill(message.chunks)
        return refused

    @property
    def begun(self) -> Ids | None:
        """Ids of an incomplete vector, or None."""
        return self._header.ids if self._header and self._assembler else None

    def _report(self, reports: Sequence[pb.UnitDone]) -> None:
        expected = self._identity.report_bytes
        for done in reports:
            if done.unit >= self._identity.units or len(done.digest) != expected:
                raise InvalidContribution(
                    f"units: unit {done.unit} of {self._identity.units}, digest of "
                    f"{len(done.digest)} bytes, expected {expected}"
                )
        self._reception.report(self._learner, reports)

    def _announce(self, header: pb.Coded) -> pb.Refused | None:
        self._header, self._assembler = header, None
        refused = self._reception.admit(header.ids, learner=self._learner, row=header.row)
        if refused is None:
            for name in ("compute_s", "started_s", "sent_s"):
                if not is_duration(getattr(header, name)):
                    raise InvalidContribution(f"coded.{name} is not a duration")
            if header.batch_bytes >= ORDINALS:
                raise InvalidContribution(
                    f"coded.batch_bytes is {header.batch_bytes}, beyond {ORDINALS - 1}"
                )
            self._coded = self._reception.room_for(header.row)
            if header.offset:
                return self._read(header)
            self._assembler = Assembler(self._coded, array_id=header.row)
        return refused

    def _read(self, header: pb.Coded) -> pb.Refused | None:
        """Read the vector in the learner's block; a refusal if it is not whole."""
        block = self._member.vectors
        if block is not None and block.read(header.offset, self._coded, checksum=header.crc32c):
            self._finish(header)
            return None
        self._member.vectors = None
        text = f"row {header.row} does not match its checksum in the learner's memory"
        return pb.Refused(ids=header.ids, reason=pb.REFUSAL_UNREADABLE, message=text)

    def _fill(self, chunks: Iterable[Chunk]) -> None:
        for chunk in chunks:
            header = self._header
            if header is None:
                raise InvalidContribution("chunks came before their Coded header")
            if self._assembler is None:  # the header was refused: drop its chunks
                continue
            self._assembler.add(chunk)
            if self._assembler.complete:
                self._finish(header)

    def _finish(self, header: pb.Coded) -> None:
        self._assembler = None
        self._reception.arrive(
            header.ids,
            Arrived(
                learner=self._learner,
                row=header.row,
                coded=self._coded,
                batch_digest=header.batch_digest,
                batch_bytes=header.batch_bytes,
                items=tuple(header.items),
                compute_s=header.compute_s,
                started_s=header.started_s,
                sent_s=header.sent_s,
            ),
            streamed=not header.offset,
        )


SHOWN_ROWS = 16
"""Most rows that the farewell of a learner names."""

LearnerMessages: TypeAlias = AsyncIterator[pb.LearnerMessage]


class ControllerServicer:
    """ControllerService over one run and the driver that takes orders.

    Args:
        term: The parts of the term.
        driver: Drives its run.
        stop: Set by the order to stop.
    """

    def __init__(self, term: Term, driver: Driver, stop: asyncio.Event) -> None:
        self._term, self._run, self._driver, self._stop = term, term.run, driver, stop
        self._began_at = asyncio.get_running_loop().time()

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Record that a learner is alive."""
        now = asyncio.get_running_loop().time()
        if not any(roster.heard(request.lease, now=now) for roster in self._run.rosters):
            raise NotFound("the lease has ended; dial again")
        return pb.HeartbeatResponse()

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        """Report the status of the run."""
        return self._run.status_response()

    async def Work(self, requests: LearnerMessages, context: Context) -> None:
        """Serve one learner from Hello to the end of its stream."""
        hello = await greeted(self._run, requests, context, role="learner")
        origin = origin_of(context)
        run, failure = self._run, ""
        member = await admitted(
            lambda: run.roster.join(
                hello.host,
                now=asyncio.get_running_loop().time(),
                domain=tuple(hello.domain.split("/")),
                process=hello.process,
                origin=origin,
                since=run.progress.applied,
            )
        )
        term = run.identity.term
        run.event_log.append(Joined(term=term, learner=member.learner))
        try:
            await first(self._converse(member, requests, context), member.expelled)
        except FullrankError as error:
            failure = str(error)
            log.info("stream_ended learner=%d reason=%s", member.learner, error)
            raise
        finally:
            if (assignment := run.membership.assignment) is not None:
                run.roster.lost_rows += len(assignment.rows_of(member))
            run.roster.leave(member)
            reason = failure or member.parting
            run.event_log.append(Left(term=term, learner=member.learner, reason=reason))
            run.reception.notify(MembershipChanged())
            log.info(
                "learner_left learner=%d host=%s reason=%s", member.learner, member.host, reason
            )

    async def Collect(self, requests: CollectorMessages, context: Context) -> None:
        """Serve one collector from Hello to the end of its stream."""
        await serve_collector(self._run, requests, context)

    async def Checkpoint(
        self, request: pb.CheckpointRequest, context: Context
    ) -> pb.CheckpointResponse:
        """Save the state at the next border of collections."""
        return pb.CheckpointResponse(iterations=await self._driver.checkpoint())

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        """Assign no more rows to a learner, which finishes its own."""
        if not request.HasField("learner"):
            raise InvalidContribution("learner is not set")
        self._run.roster.drain(request.learner)
        log.warning("drained learner=%d", request.learner)
        return pb.DrainResponse()

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopResponse:
        """End the controller, which checkpoints first."""
        log.warning("told_to_stop")
        self._stop.set()
        return pb.StopResponse()

    async def SetIterations(
        self, request: pb.SetIterationsRequest, context: Context
    ) -> pb.SetIterationsResponse:
        """Change the number of iterations, also in the run's directory."""
        keep = partial(self._keep, request.iterations)
        self._driver.set_iterations(request.iterations, keep=keep)
        log.warning("iterations_changed iterations=%d", request.iterations)
        return pb.SetIterationsResponse()

    def _keep(self, iterations: int) -> None:
        """Write the number of iterations into the run's directory."""
        directory, config = self._term.directory, self._term.config
        path, text = directory.path / CONFIGURATION, to_toml(replace(config, iterations=iterations))
        directory.confirm()
        with writing(path, remedy="make room and order it again", raised=StorageFailed):
            replace_text(path, text)

    async def _converse(self, member: Member, requests: LearnerMessages, context: Context) -> None:
        welcome = pb.Welcome()
        welcome.CopyFrom(self._run.welcome)
        welcome.learner, welcome.lease = member.learner, member.lease
        welcome.elapsed_s = asyncio.get_running_loop().time() - self._began_at
        await context.write(pb.ControllerMessage(welcome=welcome).SerializeToString())
        message = await next_of(requests, within_s=READY_S, kind="ready")
        self._admit(member, message.ready)
        await first(member.outbox.drain(context.write), self._read(member, requests))

    def _admit(self, member: Member, ready: pb.Ready) -> None:
        numerics = Numerics.of(ready.fingerprint, ready.probe)
        if not ready.stable:
            log.warning(
                "learner_unstable learner=%d fingerprint=%s: its bits depend on what is computed "
                "together; it stays a spare",
                member.learner,
                ready.fingerprint,
            )
        self._run.roster.ready(
            member,
            numerics=numerics,
            stable=ready.stable,
            maps_table=ready.maps_table,
            vectors=_opened(ready),
        )
        self._run.reception.notify(MembershipChanged())
        if ready.stable and (objection := member.objection(self._run.roster.numerics)):
            log.warning(
                "learner_spare learner=%d reason=%s fingerprint=%s",
                member.learner,
                objection,
                ready.fingerprint,
            )
        log.info(
            "learner_joined learner=%d domain=%s host=%s",
            member.learner,
            "/".join(member.domain),
            member.host,
        )

    async def _read(self, member: Member, requests: LearnerMessages) -> None:
        run, loop = self._run, asyncio.get_running_loop()
        parser = ContributionParser(run.identity, run.reception, member)
        async for message in requests:
            member.heard_at = member.sent_at = loop.time()
            if message.WhichOneof("message") == "leaving":
                member.parting = _farewell(message.leaving)
                return
            refused = parser.parse(message)
            member.begun = parser.begun
            if refused is not None:
                event = Refused(
                    term=run.identity.term,
                    learner=member.learner,
                    iteration=refused.ids.iteration,
                    reason=refused.message,
                )
                run.event_log.append(event)
                notice = pb.ControllerMessage(refused=refused)
                member.outbox.refuse(notice.SerializeToString())


STOPPED = "an administrator has stopped the controller; start it again, or `fullrank run resume`"


async def obeyed(stop: asyncio.Event, run: Run) -> None:
    """Return, of a finished run, or raise ``ServiceLost``, once the controller is told to stop."""
    await stop.wait()
    if not run.progress.finished:
        raise ServiceLost(STOPPED)


def _farewell(leaving: pb.Leaving) -> str:
    rows = ", ".join(map(str, leaving.rows[:SHOWN_ROWS]))
    return "it was told to stop" + (f", and hands back rows {rows}" if rows else "")


def _opened(ready: pb.Ready) -> ReadBlock | None:
    """The block of a learner of this host, which has opened the controller's; else None."""
    try:
        return ReadBlock(ready.block) if ready.HasField("block") else None
    except NotFound as error:
        log.info("block_not_opened reason=%s", error)
        return None
