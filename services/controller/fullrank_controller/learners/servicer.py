"""ControllerService: streams of learners and collectors in, outboxes out."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TypeAlias

from fullrank.common.errors import FullrankError, NotFound
from fullrank.host.process import first
from fullrank.host.shared_memory import ReadBlock
from fullrank.net.errors import Context, statuses
from fullrank.net.messages import check_version, run_term_of
from fullrank.run.round_orders import MembershipChanged
from fullrank.runs.events import Joined, Left, Refused
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.stream import CollectorMessages, serve_collector
from fullrank_controller.learners.contributions import ContributionParser
from fullrank_controller.membership.member import Member, Numerics
from fullrank_controller.run import Run
from fullrank_controller.streams import HELLO_S, READY_S, admitted, next_of, origin_of

log = logging.getLogger(__name__)

SHOWN_ROWS = 16
"""Most rows that the farewell of a learner names."""

LearnerMessages: TypeAlias = AsyncIterator[pb.LearnerMessage]


class ControllerServicer:
    """ControllerService over one run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Record that a learner is alive."""
        async with statuses(context):
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
        async with statuses(context):
            hello = await self._greet(requests, context)
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
                member.until = run.progress.applied
                run.roster.leave(member)
                reason = failure or member.parting
                run.event_log.append(Left(term=term, learner=member.learner, reason=reason))
                run.reception.notify(MembershipChanged())
                log.info(
                    "learner_left learner=%d host=%s reason=%s", member.learner, member.host, reason
                )

    async def Collect(self, requests: CollectorMessages, context: Context) -> None:
        """Serve one collector from Hello to the end of its stream."""
        async with statuses(context):
            await serve_collector(self._run, requests, context)

    async def _greet(self, requests: LearnerMessages, context: Context) -> pb.Hello:
        message = await next_of(requests, within_s=HELLO_S, kind="hello")
        check_version(message.hello.version, peer="learner", own="controller")
        served = run_term_of(message.hello.served)
        await self._run.term_guard.check(served, peer=context.peer())
        return message.hello

    async def _converse(self, member: Member, requests: LearnerMessages, context: Context) -> None:
        welcome = pb.Welcome()
        welcome.CopyFrom(self._run.welcome)
        welcome.learner, welcome.lease = member.learner, member.lease
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
