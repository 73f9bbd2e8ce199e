"""Relay of one call: forwards the messages of each side to the other, byte for byte.

A message is read after the previous one was written, so that a slow peer slows the other one down
as without a proxy.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any, TypeAlias

import grpc

from fullrank.rpc.errors import Context
from fullrank.rpc.tasks import first

RawMessages: TypeAlias = AsyncIterator[bytes]
Upstream: TypeAlias = grpc.aio.StreamStreamCall[bytes, bytes]

HOP = frozenset({"user-agent"})
"""Metadata that belong to one connection and are not forwarded."""


def dial(channel: grpc.aio.Channel, method: str, context: Context) -> Upstream:
    """Make the same call upstream, with its metadata and the rest of its deadline."""
    metadata: Any = tuple(
        (key, value) for key, value in context.invocation_metadata() or () if key not in HOP
    )
    remaining_s: float | None = context.time_remaining()
    return channel.stream_stream(method)(metadata=metadata, timeout=remaining_s)


class Relay:
    """Forwards a call until the upstream peer ends it, and ends it with the same status.

    Unary calls are streams of one message, on the wire too. With or without a proxy, ``grpc.aio``
    may lose the initial metadata of a call that ends at once, and the status of a call that ends
    while a message is written, which then is INTERNAL (grpc/grpc#36066).

    Args:
        requests: Messages of the caller.
        context: The caller's side.
        call: The upstream side; cancelled when the caller cancels.
    """

    def __init__(self, requests: RawMessages, context: Context, call: Upstream) -> None:
        self._requests = requests
        self._context = context
        self._call = call

    async def run(self) -> None:
        """Forward everything, including the status."""
        try:
            await first(self._down(), self._until_ended(self._up()))
        finally:
            self._call.cancel()

    async def _until_ended(self, sending: Awaitable[None]) -> None:
        """Send, then wait for ever: only the upstream peer ends a call."""
        with suppress(
            grpc.RpcError, asyncio.InvalidStateError
        ):  # it has ended; _down forwards the status
            await sending
        await asyncio.get_running_loop().create_future()

    async def _up(self) -> None:
        """Forward the requests and the end of their stream."""
        async for message in self._requests:
            await self._send(message)
        await self._call.done_writing()

    async def _send(self, message: bytes) -> None:
        await self._call.write(message)

    async def _down(self) -> None:
        """Forward initial metadata, responses and status."""
        with suppress(grpc.RpcError):  # its status follows
            await self._context.send_initial_metadata(await self._call.initial_metadata())
            async for message in self._call:
                await self._receive(message)
        self._context.set_trailing_metadata(await self._call.trailing_metadata())
        self._context.set_code(await self._call.code())
        self._context.set_details(await self._call.details() or "")

    async def _receive(self, message: bytes) -> None:
        await self._context.write(message)
