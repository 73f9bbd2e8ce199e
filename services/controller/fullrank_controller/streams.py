"""The messages that open the stream of a learner or a collector, and ``Collect`` streams."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias, TypeVar

from fullrank.common.errors import (
    ConfigError,
    DeadlinePassed,
    FullrankError,
    InvalidContribution,
    Overloaded,
    ServiceLost,
)
from fullrank.host.process import first
from fullrank.net.access import identity_of
from fullrank.net.errors import Context
from fullrank.net.messages import check_version, run_term_of
from fullrank.v1 import controller_pb2 as pb
from fullrank_controller.collectors.pool import CollectorPool
from fullrank_controller.membership.member import Member, Numerics, Origin
from fullrank_controller.run import Run

log = logging.getLogger(__name__)
Message = TypeVar("Message", pb.LearnerMessage, pb.CollectorMessage)

HELLO_S = 10.0
"""Longest wait for Hello."""
READY_S = 120.0
"""Longest wait for Ready: the probe computes every unit several times."""
MOST_BYTES = {"version": 64, "host": 255, "domain": 255, "process": 64, "fingerprint": 1024}
"""Longest texts of Hello and Ready, which logs, statuses and verdicts repeat, in bytes."""
DOMAINS = 8
"""Most failure domains within one another, as the placement compares them level by level."""

REFUSED_S = 5.0
"""Time that a stream without a place waits for its refusal: a flood of streams that dial again at
once costs more than one of streams that wait (``benchmarks/flooded_runs.py``)."""


async def admitted(join: Callable[[], Member]) -> Member:
    """Join a roster; a refusal takes ``REFUSED_S``.

    Raises:
        Overloaded: There is no place for the stream.
    """
    try:
        return join()
    except Overloaded:
        await asyncio.sleep(REFUSED_S)
        raise


async def next_of(requests: AsyncIterator[Message], *, within_s: float, kind: str) -> Message:
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
    _check_texts(message.hello if kind == "hello" else message.ready, kind)
    return message


async def greeted(
    run: Run, requests: AsyncIterator[Message], context: Context, *, role: str
) -> pb.Hello:
    """The hello of a learner or a collector of this release.

    Raises:
        VersionMismatch: It is of another one.
        StaleTerm: It has served a later term of this run.
    """
    hello = (await next_of(requests, within_s=HELLO_S, kind="hello")).hello
    check_version(hello.version, peer=role, own="controller")
    await run.term_guard.check(run_term_of(hello.served), peer=context.peer())
    return hello


def _check_texts(opening: pb.Hello | pb.Ready, kind: str) -> None:
    """Refuse texts that are longer than any that a peer of this version sends."""
    for name, most in MOST_BYTES.items():
        text = getattr(opening, name, "")
        size = len(text if isinstance(text, bytes) else text.encode())
        if size > most:
            raise InvalidContribution(f"{kind}.{name} has {size} bytes, at most {most} are taken")
    if (levels := getattr(opening, "domain", "").count("/") + 1) > DOMAINS:
        raise InvalidContribution(f"{kind}.domain has {levels} levels, at most {DOMAINS} are taken")


def origin_of(context: Context) -> Origin:
    """Return the origin of a stream, as its connection proves it."""
    address = context.peer().rpartition(":")[0]
    if "peer_uri" not in (context.auth_context() or {}):
        return Origin(address=address)
    identity = identity_of(context)
    return Origin(address=address, certificate=identity.uri, bound=identity.learner is not None)


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
    hello = await greeted(run, requests, context, role="collector")
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
