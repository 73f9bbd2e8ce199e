"""A simulated stream: messages arrive in order after a delay, except for injected faults."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar, cast

import grpc
import numpy as np
from google.protobuf.message import DecodeError, Message

from fullrank.common.errors import ServiceLost
from fullrank.net.errors import Context, statuses

SentMessage = TypeVar("SentMessage", bound=Message)
ReceivedMessage = TypeVar("ReceivedMessage", bound=Message)

APART_S = 1e-6
"""Least time between two messages of one direction, which keeps them in order."""


@dataclass(slots=True, kw_only=True)
class LinkFaults:
    """Faults of the link between a peer and the controller, as shares of all messages.

    No message is lost while its stream lives, as gRPC guarantees: the controller would wait for a
    lost report.
    """

    draws: np.random.Generator
    delay_s: float = 0.01
    """Mean delay of a message, exponential."""
    duplicated: float = 0.0
    """Messages delivered twice."""
    reordered: float = 0.0
    """Messages delivered after the next one."""
    corrupted: float = 0.0
    """Messages with chunks, or of the controller, in which one bit is flipped."""
    partitioned_until: float = 0.0
    """End of a partition; nothing arrives before this time."""

    def clear(self) -> None:
        """End all faults but the delay."""
        self.duplicated = self.reordered = self.corrupted = self.partitioned_until = 0.0


@dataclass(slots=True)
class _Direction:
    """One direction of a stream."""

    faults: LinkFaults
    arrived: "asyncio.Queue[bytes | None]" = field(default_factory=asyncio.Queue)
    _last_s: float = 0.0
    _held: list[bytes] = field(default_factory=list)

    def send(self, message: bytes, *, bulky: bool) -> None:
        faults, draw = self.faults, self.faults.draws.random(3)
        if bulky and draw[0] < faults.corrupted:
            place = int(faults.draws.integers(8 * len(message)))
            changed = bytearray(message)
            changed[place // 8] ^= 1 << place % 8
            message = bytes(changed)
        if draw[1] < faults.reordered and not self._held:
            self._held.append(message)
            return
        copies = 2 if draw[2] < faults.duplicated else 1
        for delivered in (*[message] * copies, *self._held):
            self._deliver(delivered)
        self._held.clear()

    def end(self) -> None:
        self._deliver(None)

    def _deliver(self, message: bytes | None) -> None:
        loop, faults = asyncio.get_running_loop(), self.faults
        due = max(loop.time() + faults.draws.exponential(faults.delay_s), faults.partitioned_until)
        self._last_s = max(due, self._last_s + APART_S)
        loop.call_at(self._last_s, self.arrived.put_nowait, message)


class _Ended(Exception):
    """The controller ended the stream."""


class SimulatedStream(Generic[SentMessage, ReceivedMessage]):
    """A stream to a controller, with the methods of who dialled and of the servicer.

    Args:
        serve: The servicer's method, of the stream's requests and its context.
        sent: Kind of message that the controller gets.
        received: Kind of message that it answers with.
        faults: Faults of both directions.
    """

    def __init__(
        self,
        serve: Callable[[AsyncIterator[SentMessage], Any], Awaitable[None]],
        *,
        sent: type[SentMessage],
        received: type[ReceivedMessage],
        faults: LinkFaults,
    ) -> None:
        self._sent, self._received = sent, received
        self._up, self._down = _Direction(faults), _Direction(faults)
        self._handler = asyncio.create_task(self._handle(serve))

    async def _handle(
        self, serve: Callable[[AsyncIterator[SentMessage], Any], Awaitable[None]]
    ) -> None:
        try:
            async with statuses(cast(Context, self)):  # as the gatekeeper of a server does
                await serve(self._requests(), self)
        except (_Ended, DecodeError):
            pass
        finally:
            self._down.end()

    async def _requests(self) -> AsyncIterator[SentMessage]:
        while (message := await self._up.arrived.get()) is not None:
            yield self._sent.FromString(message)

    async def write(self, message: bytes) -> None:
        """Send a message from the controller; part of the servicer's context."""
        self._down.send(message, bulky=True)

    def peer(self) -> str:
        """An address; part of the servicer's context."""
        return "simulated:0"

    def auth_context(self) -> None:
        """None, as in plain text; part of the servicer's context."""

    async def abort(self, code: grpc.StatusCode, details: str, trailing: Any = ()) -> NoReturn:
        """End the stream; part of the servicer's context."""
        raise _Ended(f"{code.name}: {details}")

    def send(self, message: SentMessage) -> None:
        """Send a message to the controller."""
        bulky = any(field.name == "chunks" for field, _ in message.ListFields())
        self._up.send(message.SerializeToString(), bulky=bulky)

    async def receive(self) -> ReceivedMessage:
        """The next message from the controller.

        Raises:
            ServiceLost: The stream has ended, or the message is malformed.
        """
        message = await self._down.arrived.get()
        if message is None:
            raise ServiceLost("the stream ended")
        try:
            return self._received.FromString(message)
        except DecodeError as error:
            raise ServiceLost(str(error)) from None

    def cut(self) -> None:
        """Break the connection; both sides see it."""
        self._handler.cancel()
        self._down.end()
