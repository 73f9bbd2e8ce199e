"""One ``Collect`` stream: the controller's side of the protocol in controller.proto."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TypeAlias

from fullrank.common.errors import ConfigError, FullrankError
from fullrank.host.process import first
from fullrank.net.errors import Context
from fullrank.net.messages import check_version, run_term_of
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member, Numerics
from fullrank_controller.run import Run
from fullrank_controller.streams import HELLO_S, READY_S, admitted, next_of, origin_of

log = logging.getLogger(__name__)

CollectorMessages: TypeAlias = AsyncIterator[pb.CollectorMessage]


async def serve_collector(run: Run, requests: CollectorMessages, context: Context) -> None:
    """Serve one collector from Hello to the end of its stream.

    Raises:
        ConfigError: The run plays without collectors.
        FullrankError: The stream must end.
    """
    pool = run.collectors
    if pool is None:
        raise ConfigError(
            "this run plays without collectors; set collect.mode = 'keyed' or 'free', and "
            "collectors.count"
        )
    hello = (await next_of(requests, within_s=HELLO_S, kind="hello")).hello
    check_version(hello.version, peer="collector", own="controller")
    await run.term_guard.check(run_term_of(hello.served), peer=context.peer())
    origin = origin_of(context)
    member = await admitted(
        lambda: pool.roster.join(
            hello.host,
            now=asyncio.get_running_loop().time(),
            process=hello.process,
            origin=origin,
            since=run.progress.applied,
            wanted=hello.index if hello.HasField("index") else None,
        )
    )
    try:
        await first(_converse(run, pool, member, requests, context), member.expelled)
    except FullrankError as error:
        log.info("collect_ended collector=%d reason=%s", member.learner, error)
        raise
    finally:
        pool.leave(member)
        log.info("collector_left collector=%d host=%s", member.learner, member.host)


async def _converse(
    run: Run,
    pool: CollectorPool,
    member: Member,
    requests: CollectorMessages,
    context: Context,
) -> None:
    welcome = pb.Welcome()
    welcome.CopyFrom(run.welcome)
    welcome.ClearField("block")
    welcome.learner, welcome.lease = member.learner, member.lease
    await context.write(pb.CollectorOrder(welcome=welcome).SerializeToString())
    ready = (await next_of(requests, within_s=READY_S, kind="ready")).ready
    numerics = Numerics.of(ready.fingerprint, ready.probe)
    pool.roster.ready(member, numerics=numerics, stable=ready.stable)
    pool.admit(member)
    if objection := member.objection(pool.roster.numerics):
        log.warning("collector_spare collector=%d reason=%s", member.learner, objection)
    log.info("collector_joined collector=%d host=%s", member.learner, member.host)
    await first(member.outbox.drain(context.write), _read(pool, member, requests))


async def _read(pool: CollectorPool, member: Member, requests: CollectorMessages) -> None:
    clock = asyncio.get_running_loop().time
    async for message in requests:
        member.heard_at = member.sent_at = clock()
        pool.take(member, message)
