"""One ``Collect`` stream: the controller's side of the protocol in controller.proto."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TypeAlias

from fullrank.common.errors import ConfigError, FullrankError, InvalidContribution
from fullrank.host.process import first
from fullrank.net.errors import Context
from fullrank.net.messages import check_version, run_term_of
from fullrank.training.blocks import BlockKey
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.blocks_in import BlockParser
from fullrank_controller.collectors.free_pool import FreePool
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
    pool: CollectorPool | FreePool,
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
    if isinstance(pool, FreePool):
        pool.admit(member)
        reading = _read_reports(pool, member, requests)
    else:
        pool.assign()
        reading = _read(run, pool, member, requests)
    if objection := member.objection(pool.roster.numerics):
        log.warning("collector_spare collector=%d reason=%s", member.learner, objection)
    log.info("collector_joined collector=%d host=%s", member.learner, member.host)
    await first(member.outbox.drain(context.write), reading)


async def _read_reports(pool: FreePool, member: Member, requests: CollectorMessages) -> None:
    clock = asyncio.get_running_loop().time
    async for message in requests:
        member.heard_at = member.sent_at = clock()
        pool.take(member, message)


async def _read(run: Run, pool: CollectorPool, member: Member, requests: CollectorMessages) -> None:
    clock = asyncio.get_running_loop().time
    parser = BlockParser(run.identity, pool.plan, agents=len(run.welcome.agents))
    async for message in requests:
        member.heard_at = member.sent_at = clock()
        if message.WhichOneof("message") == "failed":
            failed = message.failed
            key = BlockKey(failed.iteration, failed.block)
            _check_assigned(pool, member, key)
            pool.failed(member, key, failed.reason)
            continue
        finished = parser.parse(message)
        sent = parser.announced if finished is None else finished.key
        if sent is not None:
            _check_assigned(pool, member, sent)  # before its rows take memory
        if finished is not None:
            pool.answered(member, finished)


def _check_assigned(pool: CollectorPool, member: Member, key: BlockKey) -> None:
    """Refuse a block that the collector was not assigned.

    Raises:
        InvalidContribution: It was assigned another one, or none.
    """
    work = pool.eligible.get(member)
    if work is None or work.block != key:
        raise InvalidContribution(
            f"block {key.block} of iteration {key.iteration} was not assigned to this collector"
        )
