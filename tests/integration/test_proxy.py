"""The sidecar's port is transparent: calls of any service behave as if made directly."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
import pytest
from tests.waiting import WAIT_S, eventually

from fullrank.common.errors import ServiceLost
from fullrank.config import PluginSettings
from fullrank.net.channel import MESSAGE_BYTES, PLAINTEXT, UNLIMITED, open_channel
from fullrank_straggler.gate import Control, injection_of
from fullrank_straggler.server import Proxy

pytestmark = pytest.mark.integration

Seen: TypeAlias = list[tuple[dict[str, Any], float | None]]
"""Metadata and remaining seconds of each call that reached the peer."""

EARLY = (("early", "1"), ("early-bin", b"\x00\xff"))
TRAILING = (("late", "2"), ("grpc-status-details-bin", b"\x01\x02"))

OPTIONS = [("grpc.so_reuseport", 0), *UNLIMITED]


class Peer(grpc.GenericRpcHandler):
    """Echoes each message twice; some messages change its behaviour."""

    def __init__(self) -> None:
        self.seen: Seen = []
        self.calls = 0
        self.hanging = 0
        self.cancelled = 0
        self.swallowed_bytes = 0

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if handler_call_details.method == "/any.Service/Method":
            return grpc.stream_stream_rpc_method_handler(self._answer)
        return None

    async def _answer(self, requests: AsyncIterator[bytes], context: Any) -> None:
        self.calls += 1
        self.seen.append((dict(context.invocation_metadata()), context.time_remaining()))
        await context.send_initial_metadata(EARLY)
        context.set_trailing_metadata(TRAILING)
        try:
            async for request in requests:
                await self._respond(request, context)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _respond(self, request: bytes, context: Any) -> None:
        if request.startswith(b"fail "):
            code = grpc.StatusCode[request.split()[1].decode()]
            await context.abort(code, "details, ünïcode and 100 %")
        if request == b"hang":
            self.hanging += 1
            await asyncio.Event().wait()
        if request.startswith(b"swallow"):
            self.swallowed_bytes += len(request)
            return
        await context.write(2 * request)


def proxy_to(upstream: Callable[[], str]) -> Proxy:
    """A proxy that injects nothing."""
    control = Control(injection_of(PluginSettings(name="none")))
    return Proxy(upstream, control, security=PLAINTEXT)


@asynccontextmanager
async def standing() -> AsyncIterator[tuple[Peer, grpc.aio.Channel, grpc.aio.Channel]]:
    """A peer, a direct channel to it, and one through the proxy."""
    peer, server = Peer(), grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((peer,))
    beyond = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    proxy = Proxy(
        lambda: beyond, Control(injection_of(PluginSettings(name="none"))), security=PLAINTEXT
    )
    here = await proxy.start("127.0.0.1:0")
    direct, through = (open_channel(each, options=OPTIONS) for each in (beyond, here))
    try:
        async with asyncio.timeout(WAIT_S):
            yield peer, direct, through
    finally:
        await direct.close()
        await through.close()
        await proxy.stop()
        await server.stop(None)


Outcome: TypeAlias = tuple[Any, ...]
"""Messages, trailing metadata, code, details."""


async def stream(channel: grpc.aio.Channel, requests: list[bytes], **options: Any) -> Outcome:
    """Outcome of a call with a stream of requests."""
    method: Any = channel.stream_stream("/any.Service/Method")
    call = method(iter(requests), **options)
    return await outcome(call, lambda: collected(call))


async def unary(channel: grpc.aio.Channel, request: bytes, **options: Any) -> Outcome:
    """Outcome of a unary call."""
    method: Any = channel.unary_unary("/any.Service/Method")
    call = method(request, **options)

    async def response() -> bytes:
        answer: bytes = await call
        return answer

    return await outcome(call, response)


async def collected(call: Any) -> list[bytes]:
    return [message async for message in call]


async def outcome(call: Any, answers: Callable[[], Awaitable[Any]]) -> Outcome:
    try:
        came = await answers()
    except grpc.RpcError:
        came = None
    facts = (call.trailing_metadata, call.code, call.details)
    return (came, *[await fact() for fact in facts])


@pytest.mark.parametrize(
    "requests", [[], [bytes([index]) * index for index in range(100)], [bytes(3 * MESSAGE_BYTES)]]
)
async def test_a_stream_goes_as_it_does_directly(requests: list[bytes]) -> None:
    async with standing() as (peer, direct, through):
        expected = await stream(direct, requests)
        assert await stream(through, requests) == expected
        assert expected[0] == [2 * request for request in requests]
        assert peer.calls == 2


@pytest.mark.parametrize("code", ["CANCELLED", "DATA_LOSS"])
async def test_status_details_and_trailing_metadata_come_through(code: str) -> None:
    requests = [b"a", f"fail {code}".encode()]  # no more: grpc.aio loses the writer's status
    async with standing() as (_, direct, through):
        expected = await stream(direct, requests)
        assert await stream(through, requests) == expected
        assert expected[1:3] == (TRAILING, grpc.StatusCode[code])


async def test_initial_metadata_comes_through_while_the_call_is_open() -> None:
    async with standing() as (_, _, through):
        call: Any = through.stream_stream("/any.Service/Method")()
        assert await call.initial_metadata() == EARLY
        await call.write(b"1")
        assert await call.read() == b"11"
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_request_metadata_and_deadline_reach_the_peer() -> None:
    metadata = (("key", "value"), ("key-bin", b"\x00\x01"))
    async with standing() as (peer, _, through):
        await unary(through, b"x", metadata=metadata, timeout=WAIT_S)
        await unary(through, b"x")
    [(came, remaining_s), (_, unlimited)] = peer.seen
    assert came.items() >= dict(metadata).items()
    assert remaining_s is not None
    assert remaining_s <= 1.02 * WAIT_S  # the wire rounds deadlines up
    assert unlimited is None


async def test_a_cancelled_call_is_cancelled_at_the_peer() -> None:
    async with standing() as (peer, _, through):
        call: Any = through.stream_stream("/any.Service/Method")()
        await call.write(b"1")
        assert await call.read() == b"11"
        await call.write(b"hang")
        call.cancel()
        await eventually(lambda: peer.cancelled == 1, what="cancelled")


async def test_a_deadline_that_passes_ends_the_call_on_both_sides() -> None:
    async with standing() as (peer, _, through):
        deadline_s = 0.2
        while not peer.hanging:  # on a busy machine the deadline may pass on the way there
            _, *_, code, _ = await unary(through, b"hang", timeout=deadline_s)
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            deadline_s *= 2.0
        await eventually(lambda: peer.cancelled >= 1, what="cancelled")


async def test_a_peer_that_takes_nothing_stops_the_sender() -> None:
    """Two streams write at once; the one whose peer does not read stops early."""
    piece, stuck_bytes = b"swallow".ljust(2**20), 0

    async def keep_writing(call: Any) -> None:
        nonlocal stuck_bytes
        while True:
            await call.write(piece)
            stuck_bytes += len(piece)

    async with standing() as (peer, _, through):
        method: Any = through.stream_stream("/any.Service/Method")
        stuck, flowing = method(), method()
        await stuck.write(b"hang")
        writing = asyncio.create_task(keep_writing(stuck))
        for _ in range(2**8):
            await flowing.write(piece)
        await eventually(lambda: peer.swallowed_bytes == 2**28, what="the other stream is read")
        writing.cancel()
    assert stuck_bytes < 2**26  # windows and one message a hop, not a queue


async def test_a_peer_that_is_not_there_is_unavailable() -> None:
    def nowhere() -> str:
        raise ServiceLost("the controller has not announced its address yet")

    proxy = proxy_to(nowhere)
    address = await proxy.start("127.0.0.1:0")
    async with open_channel(address) as channel:
        _, *_, code, details = await unary(channel, b"")
    await proxy.stop()
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "not announced" in details
