"""One call passed on: what comes from either side goes to the other, byte for byte.

A message is read when the one before it was taken, so a slow peer slows the other one down as if
nothing stood between them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any, TypeAlias

import grpc

from fullrank.rpc.tasks import first

Requests: TypeAlias = AsyncIterator[bytes]
Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
Upstream: TypeAlias = grpc.aio.StreamStreamCall[bytes, bytes]

HOP = frozenset({"user-agent"})
"""Metadata that each connection states for itself."""


def dial(channel: grpc.aio.Channel, method: str, context: Context) -> Upstream:
    """The same call to the peer beyond: its metadata, and what is left of its deadline."""
    metadata: Any = tuple(
        (key, value) for key, value in context.invocation_metadata() or () if key not in HOP
    )
    remaining_s: float | None = context.time_remaining()
    return channel.stream_stream(method)(metadata=metadata, timeout=remaining_s)


class Relay:
    """Passes a call on until the peer beyond ends it, and ends it as that peer did.

    Unary calls are streams of one message, on the wire too. Of a call whose end arrives with its
    beginning ``grpc.aio`` may lose the initial metadata, and of one that ends while a message is
    written the status, which is INTERNAL then (grpc/grpc#36066); with a proxy or without.

    Args:
        requests: What the caller sends.
        context: The caller's side.
        call: The side beyond; cancelled when the caller cancels.
    """

    def __init__(self, requests: Requests, context: Context, call: Upstream) -> None:
        self._requests = requests
        self._context = context
        self._call = call

    async def run(self) -> None:
        """Pass everything on, the ending too."""
        try:
            await first(self._down(), self._until_ended(self._up()))
        finally:
            self._call.cancel()

    async def _until_ended(self, sending: Awaitable[None]) -> None:
        """Send; then wait for ever, for only the peer beyond ends a call."""
        with suppress(grpc.RpcError, asyncio.InvalidStateError):  # it has: _down says how
            await sending
        await asyncio.get_running_loop().create_future()

    async def _up(self) -> None:
        """Requests, then that there are no more."""
        async for message in self._requests:
            await self._send(message)
        await self._call.done_writing()

    async def _send(self, message: bytes) -> None:
        await self._call.write(message)

    async def _down(self) -> None:
        """Initial metadata, responses, then how the call ended."""
        with suppress(grpc.RpcError):  # its status follows
            await self._context.send_initial_metadata(await self._call.initial_metadata())
            async for message in self._call:
                await self._receive(message)
        self._context.set_trailing_metadata(await self._call.trailing_metadata())
        self._context.set_code(await self._call.code())
        self._context.set_details(await self._call.details() or "")

    async def _receive(self, message: bytes) -> None:
        await self._context.write(message)
