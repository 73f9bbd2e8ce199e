"""ControllerService: learners' streams in, outboxes out."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TypeAlias

from fullrank.common.errors import (
    DeadlinePassed,
    FullrankError,
    InvalidContribution,
    NotFound,
    ServiceLost,
)
from fullrank.rpc.access import identity_of
from fullrank.rpc.errors import Context, statuses
from fullrank.rpc.messages import run_term_of
from fullrank.rpc.shared_memory import ReadBlock
from fullrank.rpc.tasks import first
from fullrank.rpc.version import check_version
from fullrank.runs.events import Joined, Left, Refused
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.learners.contributions import ContributionParser
from fullrank_controller.membership.roster import Member, Numerics, Origin
from fullrank_controller.rounds.events import MembershipChanged
from fullrank_controller.run import Run

log = logging.getLogger(__name__)

LearnerMessages: TypeAlias = AsyncIterator[pb.LearnerMessage]

HELLO_S = 10.0
"""Longest wait for Hello."""
READY_S = 120.0
"""Longest wait for Ready: the probe computes every unit several times."""


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
            if not self._run.roster.heard(request.lease, now=now):
                raise NotFound("the lease has ended; dial Work again")
            return pb.HeartbeatResponse()

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        """Report the status of the run."""
        return self._run.status_response()

    async def Work(self, requests: LearnerMessages, context: Context) -> None:
        """Serve one learner from Hello to the end of its stream."""
        async with statuses(context):
            hello = await self._greet(requests)
            origin = _origin(context)
            run, reason = self._run, "it ended its stream"
            member = run.roster.join(
                hello.host,
                now=asyncio.get_running_loop().time(),
                domain=tuple(hello.domain.split("/")),
                process=hello.process,
                origin=origin,
                since=run.progress.applied,
            )
            term = run.identity.term
            run.event_log.append(Joined(term=term, learner=member.learner))
            try:
                await first(self._converse(member, requests, context), member.expelled)
            except FullrankError as error:
                reason = str(error)
                log.info("stream_ended learner=%d reason=%s", member.learner, error)
                raise
            finally:
                run.roster.leave(member)
                run.event_log.append(Left(term=term, learner=member.learner, reason=reason))
                run.reception.notify(MembershipChanged())
                log.info("learner_left learner=%d host=%s", member.learner, member.host)

    async def _greet(self, requests: LearnerMessages) -> pb.Hello:
        message = await _next(requests, within_s=HELLO_S, kind="hello")
        check_version(message.hello.version, peer="learner", own="controller")
        self._run.term_guard.check_term(run_term_of(message.hello.served))
        return message.hello

    async def _converse(self, member: Member, requests: LearnerMessages, context: Context) -> None:
        welcome = pb.Welcome()
        welcome.CopyFrom(self._run.welcome)
        welcome.learner, welcome.lease = member.learner, member.lease
        await context.write(pb.ControllerMessage(welcome=welcome).SerializeToString())
        message = await _next(requests, within_s=READY_S, kind="ready")
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
        if ready.stable and (objection := self._run.roster.objection(member)):
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


def _origin(context: Context) -> Origin:
    """Where a stream comes from, as its connection proves."""
    address = context.peer().rpartition(":")[0]
    if "peer_uri" not in (context.auth_context() or {}):
        return Origin(address=address)
    identity = identity_of(context)
    return Origin(address=address, certificate=identity.uri, bound=identity.learner is not None)


def _opened(ready: pb.Ready) -> ReadBlock | None:
    """The block of a learner of this host, which has opened the controller's; else None."""
    try:
        return ReadBlock(ready.block) if ready.HasField("block") else None
    except NotFound as error:
        log.info("block_not_opened reason=%s", error)
        return None


async def _next(requests: LearnerMessages, *, within_s: float, kind: str) -> pb.LearnerMessage:
    """The next message, which must be of this kind."""
    try:
        async with asyncio.timeout(within_s):
            message = await anext(requests)
    except StopAsyncIteration:
        raise ServiceLost(f"the stream ended before {kind}") from None
    except TimeoutError:
        raise DeadlinePassed(f"{kind} did not come within {within_s:.0f} s") from None
    if message.WhichOneof("message") != kind:
        raise InvalidContribution(f"expected {kind}, got {message.WhichOneof('message')}")
    return message
